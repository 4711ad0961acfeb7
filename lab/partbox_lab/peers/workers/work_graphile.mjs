// A worker of graphile-worker with one task, or its schema with the argument `install`.
import { handle, load, RUN, waitForGo } from "./reporting.mjs";

const { run, runMigrations, Logger } = load("graphile-worker");
const pg = load("pg");

const JOBS = 24;
// The local queue trades latency for throughput, as its page says: so it is left out where latency is measured.
const BATCHES = RUN.watched ? {} : { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
const pgPool = new pg.Pool({ max: JOBS + 1 });
const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});

if (process.argv.includes("install")) {
  await runMigrations({ pgPool, logger });
  await pgPool.end();
} else {
  await pgPool.query("select 1");
  await waitForGo();
  await run({
    pgPool,
    logger,
    noHandleSignals: true,
    taskList: { handle: async (payload) => handle(payload) },
    preset: {
      worker: {
        concurrentJobs: JOBS,
        maxPoolSize: JOBS + 1,
        ...BATCHES,
      },
    },
  });
}
