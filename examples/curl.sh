#!/bin/sh
# The HTTP API with curl. Start the system first: detent up
set -eu
url="${DETENT_URL:-http://127.0.0.1:8642}/api/v1"

# A cron job. Changes must say that they are JSON.
job=$(curl -fsS "$url/jobs" -H 'content-type: application/json' -d '{
  "name": "hello-curl",
  "task": {"kind": "shell", "command": "echo hello from curl"},
  "cron": "* * * * *",
  "timezone": "Europe/Berlin"
}')
job_id=$(printf %s "$job" | python3 -c 'import json, sys; print(json.load(sys.stdin)["job_id"])')
echo "created $job_id"

# When will it run?
curl -fsS "$url/schedules/preview" -H 'content-type: application/json' \
  -d '{"cron": "* * * * *", "timezone": "Europe/Berlin", "count": 3}'
echo

# Run it now as well, wait, and read its output.
execution=$(curl -fsS -X POST "$url/jobs/$job_id/run" -H 'content-type: application/json')
execution_id=$(printf %s "$execution" | python3 -c 'import json, sys; print(json.load(sys.stdin)["execution_id"])')
while ! curl -fsS "$url/executions/$execution_id" | grep -q '"status": *"succeeded"'; do sleep 0.2; done
curl -fsS "$url/executions/$execution_id/logs"

# The end of it.
curl -fsS -X DELETE "$url/jobs/$job_id" -H 'content-type: application/json' > /dev/null
echo "cancelled $job_id"
