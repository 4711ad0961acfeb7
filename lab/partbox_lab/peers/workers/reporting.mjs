// What a worker in Node tells the benchmark; processes.py says how. Importing it starts the timer that reports.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { once } from "node:events";

export const RUN = JSON.parse(process.env.PEER_RUN);
export const load = createRequire(`${process.env.PEER_MODULES}/`);

let handled = 0;
let told = 0;
let seen = [];

/** The handler of all events: it counts, or notes the number and the time of each. */
export function handle(payload) {
  if (RUN.watched) seen.push(`seen ${process.pid} ${process.hrtime.bigint()} ${payload.number}\n`);
  handled += 1;
}

/** Says that the worker is ready and waits for the start; from then on the process ends when the benchmark wants it. */
export async function waitForGo() {
  const lines = createInterface({ input: process.stdin });
  lines.on("close", () => process.exit(0));
  process.stdout.write("ready\n");
  await once(lines, "line");
  setInterval(report, RUN.watched ? 100 : 20);
}

function report() {
  if (handled === told) return;
  process.stdout.write(`${seen.join("")}count ${process.pid} ${process.hrtime.bigint()} ${handled}\n`);
  told = handled;
  seen = [];
}
