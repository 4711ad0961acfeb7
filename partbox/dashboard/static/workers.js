// The worker processes, what is parked, and what happened lately.

import { byId, clock, counted, el, length, number, said, show } from "./text.js";
import { badge } from "./map.js";

const STATES = {
  retrying: "failed, and is tried again when it is due",
  deferred: "put off by its handler, or by a circuit that is open",
  scheduled: "to be delivered at a later time",
  held: "waits behind another event of its aggregate",
  ready: "about to run",
  dead: "nobody tries it any more",
};

export function drawWorkers({ instances }, highlight) {
  const nodes = new Set(instances.map((each) => each.node)).size;
  byId("workers-note").textContent = instances.length ? `${number(instances.length)} on ${counted(nodes, "node")}` : "";
  if (!instances.length) {
    show(byId("workers"), el("p", { class: "empty" }, "None. Start some on any host that reaches the database: ", el("code", {}, "partbox worker MODULE:OUTBOX")));
    return;
  }
  const most = Math.max(...instances.map((each) => each.partitions), 1);
  const rows = instances.map((each) => row(each, most));
  const head = el(
    "tr",
    {},
    ...["", "Node", "pid", "State", "Heartbeat", "Partitions"].map((name) =>
      el("th", { scope: "col", class: ["pid", "Heartbeat"].includes(name) ? "number" : null }, name || el("span", { class: "unseen" }, "Letter")),
    ),
  );
  show(byId("workers"), el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)));
  byId("workers").querySelectorAll("tbody tr").forEach((line, place) => {
    line.onpointerenter = () => highlight(place);
    line.onpointerleave = () => highlight(null);
  });
  for (const meter of byId("workers").querySelectorAll(".bar i")) meter.style.width = `${meter.dataset.share}%`;
}

function row(each, most) {
  return el(
    "tr",
    { "data-state": each.state },
    el("td", {}, badge(each)),
    el("td", { class: "node" }, said(each.node), each.hostname !== each.node ? el("small", {}, " ", said(each.hostname)) : ""),
    el("td", { class: "number" }, String(each.pid)),
    el("td", {}, el("span", { class: "state", "data-state": each.state }, each.state)),
    el("td", { class: "number", title: `lease ${length(each.lease)}` }, `${each.heartbeat.toFixed(1)} s`),
    el(
      "td",
      { class: "share" },
      el(
        "div",
        {},
        el("span", { class: "bar", "data-slot": each.slot, "aria-hidden": "true" }, el("i", { "data-share": Math.round((100 * each.partitions) / most) })),
        el("span", {}, String(each.partitions)),
      ),
    ),
  );
}

export function drawParked({ parked, blocked_keys }) {
  const states = Object.keys(STATES).filter((state) => parked[state]);
  const all = states.reduce((sum, state) => sum + parked[state], 0);
  byId("parked-note").textContent = blocked_keys ? `${counted(blocked_keys, "blocked aggregate")}` : "";
  if (!all) {
    show(byId("parked"), el("p", { class: "empty" }, "Nothing. Events that cannot be finished at once come here: failed, put off, delayed, dead."));
    return;
  }
  const facts = states.map((state) =>
    el("div", { title: STATES[state] }, el("dt", { "data-parked": state }, state), el("dd", {}, number(parked[state]))),
  );
  const bar = el("div", { class: "stack", "aria-hidden": "true" }, ...states.map((state) => el("i", { "data-parked": state, "data-share": parked[state] })));
  show(byId("parked"), bar, el("dl", { class: "facts" }, ...facts));
  for (const part of byId("parked").querySelectorAll(".stack i")) part.style.flexGrow = part.dataset.share;
}

export function drawLately({ happenings }) {
  const items = [...happenings].reverse().map((each) =>
    el("li", { "data-kind": each.kind }, el("time", { datetime: each.at }, clock(each.at)), " ", said(each.text)),
  );
  show(byId("lately"), ...(items.length ? items : [el("li", { class: "empty" }, "Nothing has changed since somebody watches.")]));
}
