-- Reads and writes mixed, as wrk sends them: of 20 requests 10 read a job, 2 list jobs, 1 lists executions, 6 make a
-- job, 1 runs one. Jobs are picked from a list; every thread starts at another place.

local ids, thread_number = {}, 0
local json = {["content-type"] = "application/json"}
local step, made = 0, 0

function setup(thread)
  thread:set("number", thread_number)
  thread_number = thread_number + 1
end

function init(args)
  for line in io.lines(os.getenv("BENCH_IDS")) do ids[#ids + 1] = line end
  step = number * 7919
end

function request()
  step = step + 1
  local id = ids[step % #ids + 1]
  local turn = step % 20
  if turn < 10 then return wrk.format("GET", "/api/v1/jobs/" .. id) end
  if turn < 12 then return wrk.format("GET", "/api/v1/jobs?limit=20") end
  if turn < 13 then return wrk.format("GET", "/api/v1/jobs/" .. id .. "/executions?limit=10") end
  if turn < 19 then
    made = made + 1
    local body = string.format(
      '{"name": "mix %d", "task": "bench.nothing", "payload": {"n": %d}, "cron": "0 %d * * *"}', made, made, made % 24)
    return wrk.format("POST", "/api/v1/jobs", json, body)
  end
  return wrk.format("POST", "/api/v1/jobs/" .. id .. "/run", json, "{}")
end

function done(summary, latency, requests)
  local bad = summary.errors
  io.write(string.format(
    'RESULT {"requests": %d, "seconds": %.3f, "not_2xx": %d, "broken": %d, "p50_ms": %.2f, "p99_ms": %.2f, "max_ms": %.2f}\n',
    summary.requests, summary.duration / 1e6, bad.status, bad.connect + bad.read + bad.write + bad.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3))
end
