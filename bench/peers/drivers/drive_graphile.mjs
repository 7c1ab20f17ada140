// Graphile Worker: a local queue of as many jobs as the batch says, completions gathered, and a poll every 20 ms
// besides its notifications. node drive_graphile.mjs MODULES load N FIRST RATE | work
import { openSync, writeSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, command, n, first, rate] = process.argv.slice(2);
const require = createRequire(join(modules, "package.json"));
const { run, makeWorkerUtils } = require("graphile-worker");
const { Pool } = require("pg");
const address = new URL(process.env.BENCH_URL.replace("@/", "@localhost/"));
const pool = new Pool({
  host: address.searchParams.get("host"),
  port: Number(address.searchParams.get("port")),
  user: decodeURIComponent(address.username),
  database: address.pathname.slice(1),
  max: Number(process.env.BENCH_SLOTS) + 2,
});
pool.on("error", () => {}); // the worker opens another

if (command === "load") {
  const utils = await makeWorkerUtils({ pgPool: pool });
  await utils.migrate();
  await pool.query(
    `select count(*) from graphile_worker.add_jobs(array(
       select row('write', json_build_object('at', at), null, case when at > 0 then to_timestamp(at) end,
                  null, null, null, null)::graphile_worker.job_spec
       from (select $2::float8 + case when $3::integer > 0 then i / $3::float8 else 0 end as at
             from generate_series(0, $1::integer - 1) i) instants))`,
    [n, first, rate],
  );
  await utils.release();
  await pool.end();
} else {
  const file = openSync(process.env.BENCH_FILE, "a");
  const sixteen = Buffer.from("0123456789abcde\n");
  const batch = Number(process.env.BENCH_BATCH);
  const delayed = process.env.BENCH_DELAYED === "1";
  await run({
    pgPool: pool,
    noHandleSignals: false,
    taskList: {
      write: ({ at }) => {
        if (at > 0) writeSync(file, `${(performance.timeOrigin + performance.now() - at * 1000).toFixed(3)}\n`);
        else writeSync(file, sixteen);
      },
    },
    preset: {
      worker: {
        concurrentJobs: Number(process.env.BENCH_SLOTS),
        pollInterval: 20,
        localQueue: { size: batch },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
  });
}
