// Workers of pg-boss on one queue, or its schema and that queue with the argument `install`.
import { handle, load, RUN, waitForGo } from "./reporting.mjs";

const PgBoss = load("pg-boss");

// Of a batch pg-boss picks any job of a key, not the oldest, so with order a batch is one job.
const [WORKERS, BATCH] = RUN.order === "key" ? [4, 1] : [2, 2000];
const boss = new PgBoss({ max: 10 });
boss.on("error", (error) => console.error(error.message));
await boss.start();

if (process.argv.includes("install")) {
  await boss.createQueue("events", { policy: RUN.order === "key" ? "singleton" : "standard" });
  await boss.stop({ graceful: false });
} else {
  await waitForGo();
  for (let number = 0; number < WORKERS; number += 1) {
    let id;
    const options = { batchSize: BATCH, pollingIntervalSeconds: 0.5, priority: false };
    id = await boss.work("events", options, async (jobs) => {
      for (const job of jobs) handle(job.data);
      boss.notifyWorker(id); // look again at once, as there was something
    });
  }
}
