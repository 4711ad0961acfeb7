// The worker processes, the handlers that run for long, what sinks have sent, what is parked, and what happened lately.

import { brief, byId, clock, counted, el, length, number, said, show } from "./text.js";
import { aggregate } from "./list.js";
import { badge } from "./map.js";
import { row, table } from "./table.js";

const STATES = {
  retrying: "failed; tried again when it is due",
  deferred: "put off until its handler can work",
  scheduled: "to be delivered at a later time",
  held: "waits behind another event of its aggregate",
  ready: "about to run",
  dead: "given up: replay or discard it",
  discarded: "dead, and discarded by an operator, or delayed, and cancelled in time",
};

export function drawWorkers({ instances, nodes, running, sinks }, highlight) {
  byId("workers-note").textContent = instances.length ? `${number(instances.length)} on ${counted(nodes, "node")}` : "";
  drawRunning(running, instances);
  drawSinks(sinks);
  if (!instances.length) {
    show(byId("workers"), el("p", { class: "empty" }, "None. Start some on any host that reaches the database: ", el("code", {}, "partbox worker MODULE:OUTBOX")));
    return;
  }
  const most = Math.max(...instances.map((each) => each.partitions), 1);
  const heads = [[el("span", { class: "unseen" }, "Letter")], ["Node", "node"], ["pid", "number"], ["State"], ["Heartbeat", "number"], ["Partitions", "share"]];
  show(byId("workers"), table(heads, instances.map((each) => process(each, most))));
  byId("workers").querySelectorAll("tbody tr").forEach((line, place) => {
    line.onpointerenter = () => highlight(place);
    line.onpointerleave = () => highlight(null);
  });
  for (const meter of byId("workers").querySelectorAll(".bar i")) meter.style.width = `${meter.dataset.share}%`;
}

function process(each, most) {
  const bar = el("span", { class: "bar", "data-slot": each.slot, "aria-hidden": "true" }, el("i", { "data-share": Math.round((100 * each.partitions) / most) }));
  return row(
    { "data-state": each.state },
    badge(each),
    [said(each.node), each.same_host ? "" : el("small", {}, " ", said(each.hostname))],
    String(each.pid),
    el("span", { class: "state", "data-state": each.state }, each.state),
    el("td", { title: `its lease is ${length(each.lease)}` }, `${each.heartbeat.toFixed(1)} s ago`),
    el("div", {}, bar, el("span", {}, String(each.partitions))),
  );
}

function drawRunning({ count, handlers }, instances) {
  byId("running-side").hidden = !count;
  byId("running-note").textContent = count > handlers.length ? `the longest ${handlers.length} of ${number(count)}` : "";
  const heads = [[el("span", { class: "unseen" }, "Letter")], ["Process"], ["Handler", "handler"], ["Event"], ["Aggregate"], ["Runs for", "number"]];
  const rows = handlers.map((each) => {
    const { node, pid } = instances[each.place];
    const event = [said(each.event_type), el("small", {}, ` record ${each.record}`)];
    return row({ "data-running": each.record }, badge(instances[each.place]), said(`${node} ${pid}`), said(each.handler), event, aggregate(each), length(each.seconds));
  });
  show(byId("running"), table(heads, rows));
}

function drawSinks(sinks) {
  byId("sinks-side").hidden = !sinks.length;
  const heads = [["Sink", "handler"], ["Sent", "number"], ["In flight", "number"], ["Acknowledged in", "number"], ["Sent again", "number"]];
  const rows = sinks.flatMap((each) => [
    row({ "data-sink": each.name }, said(each.name), number(each.sent), number(each.in_flight), brief(each.mean), number(each.retries)),
    ...(each.error === null ? [] : [row({ "data-failing": each.name }, el("td", { colspan: 5 }, `nothing acknowledged for ${length(each.failing)}: `, said(each.error)))]),
  ]);
  show(byId("sinks"), table(heads, rows));
}

export function drawParked({ parked, blocked_keys }) {
  const states = Object.keys(STATES);
  const all = states.reduce((sum, state) => sum + (state === "discarded" ? 0 : parked[state] ?? 0), 0);
  byId("parked-note").textContent = all ? `${counted(all, "event")}; ${counted(blocked_keys, "aggregate")} blocked` : "nothing: every event was finished at once";
  const facts = states.map((state) =>
    el("div", { "data-none": !parked[state] }, el("dt", { "data-parked": state }, state), el("dd", {}, number(parked[state] ?? 0)), el("dd", { class: "note" }, STATES[state])),
  );
  show(byId("parked"), el("dl", { class: "facts" }, ...facts));
}

export function drawLately({ happenings }) {
  const items = [...happenings].reverse().map((each) =>
    el("li", { "data-kind": each.kind }, el("time", { datetime: each.at }, clock(each.at)), " ", said(each.text)),
  );
  show(byId("lately"), ...(items.length ? items : [el("li", { class: "empty" }, "Nothing has changed while somebody watched.")]));
}
