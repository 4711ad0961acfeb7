// Puts the page together: each frame of the stream is drawn, and asks for what may have changed beside it.

import { byId, clock, el, length, number, said, show } from "./text.js";
import { Charts } from "./charts.js";
import { PartitionMap } from "./map.js";
import { drawLately, drawParked, drawWorkers } from "./workers.js";
import { Blocked, Dead } from "./trouble.js";
import { askToken, toast } from "./ask.js";
import { Stream, keep, post, token } from "./link.js";

let frame = null; // the last one
let lostAt = null; // when the stream broke
let mayAct = false;
let chosen = new URLSearchParams(location.search).get("subscription");

token();
const charts = new Charts(byId("charts"));
const map = new PartitionMap();
const context = {
  subscription: () => chosen || frame?.subscription?.name || "default",
  mayAct: () => mayAct,
  failed: (error) => toast(error.message, "bad"),
  changed: () => setTimeout(() => lists.forEach((list) => list.reload()), 300),
};
const lists = [new Blocked(context), new Dead(context)];
const stream = new Stream({ frame: draw, lost });

function draw(data) {
  frame = data;
  lostAt = null;
  if (mayAct !== data.may_act) {
    mayAct = data.may_act;
    lists.forEach((list) => list.redraw());
  }
  drawHead();
  drawAlarms();
  if (!data.subscription) return;
  charts.draw(data.subscription.point, data.history);
  map.draw(data.subscription, data.at);
  drawWorkers(data.subscription, (place) => map.highlight(place));
  drawParked(data.subscription);
  drawLately(data.subscription);
  if (data.error === null) refresh(data);
}

function refresh({ subscription, at }) {
  const parked = subscription.parked;
  const mark = [subscription.name, subscription.blocked_keys, ...Object.entries(parked).flat()].join(" ");
  for (const list of lists) list.refresh(mark, at);
}

function lost(error) {
  lostAt ??= new Date();
  drawHead(error);
  drawAlarms(error);
}

function drawHead(error = null) {
  const state = lostAt ? "lost" : frame?.error ? "stale" : frame ? "live" : "waiting";
  const words = { lost: "Connection lost", stale: "Database away", live: "Live", waiting: "Connecting …" };
  const connection = byId("connection");
  if (connection.dataset.state !== state || connection.textContent !== words[state]) {
    connection.dataset.state = state;
    connection.textContent = error?.status === 401 ? "Token needed" : words[state];
  }
  const access = byId("access");
  access.textContent = mayAct ? "Actions allowed" : "Read-only";
  access.dataset.state = mayAct ? "open" : "closed";
  access.title = mayAct ? "This tab has the token: it may replay, skip and discard. Press to give it up." : "To replay, skip or discard, open the address with the token that the server printed, or press here and paste it.";
  if (!frame?.subscription) return;
  drawChoice();
  const { pending, exact, lag, completed, parked } = frame.subscription;
  const waits = pending ? `${exact ? "" : "about "}${number(pending)} pending, the oldest for ${length(lag)}` : "nothing pending";
  const dead = parked.dead ? `${number(parked.dead)} dead` : null;
  byId("summary").textContent = [waits, dead, `about ${number(completed)} done`].filter(Boolean).join(" · ");
  document.title = `${frame.subscription.alarms.length ? "(!) " : ""}${pending ? `${number(pending)} pending` : "partbox"}`;
}

function drawChoice() {
  const options = frame.subscriptions.map(({ name, label, paused, dead }) => {
    const marks = [paused && "paused", dead && `${number(dead)} dead`].filter(Boolean).join(", ");
    return el("option", { value: name, selected: name === frame.subscription.name }, `${label}${marks ? ` (${marks})` : ""}`);
  });
  const select = byId("subscription");
  if (document.activeElement !== select) show(select, ...options);
}

function drawAlarms(error = null) {
  const told = [...serverAlarms(error), ...(lostAt ? [] : databaseAlarms()), ...(frame?.subscription?.alarms ?? [])];
  show(byId("alarms"), ...told.map(alarm));
  const words = told.map(({ name, text }) => [name, text]);
  const names = words.map(([name]) => name).join(" ");
  const announce = byId("announce");
  if (announce.dataset.names !== names) {
    announce.dataset.names = names;
    announce.textContent = words.map(([, text]) => text).join(" ") || "No alarm.";
  }
}

function serverAlarms(error) {
  if (!lostAt) return [];
  if (error?.status === 401) {
    return [{ level: "warn", name: "token", text: "This page is shown to those who have the token.", remedy: error.message, action: "token" }];
  }
  if (error?.status === 403) return [{ level: "bad", name: "refused", text: "The server refuses this page.", remedy: error.message }];
  const since = frame?.at ? ` What is shown is of ${clock(frame.at)}.` : "";
  return [{ level: "bad", name: "lost", text: `The page has lost its server.${since}`, remedy: "It tries again by itself. Is the command that serves it still running?" }];
}

function databaseAlarms() {
  if (!frame) return [];
  if (frame.error) {
    const since = frame.at ? ` What is shown is of ${clock(frame.at)}.` : "";
    return [{ level: "bad", name: "database", text: `The database does not answer: ${frame.error}.${since}`, remedy: "It tries again by itself. Nothing is delivered while workers cannot reach it either." }];
  }
  if (frame.subscription) return [];
  if (!frame.subscriptions.length) {
    return [{ level: "warn", name: "writer-only", text: "This schema has no subscription: nothing is delivered from here.", remedy: "To deliver: partbox subscription create default" }];
  }
  return [{ level: "warn", name: "missing", text: `There is no subscription ${chosen}.`, remedy: "Choose another above.", }];
}

function alarm({ level, name, text, remedy, action }) {
  const act = { resume: ["Resume", resume], token: ["Enter the token", enter] }[action];
  const usable = act && (action !== "resume" || mayAct);
  return el(
    "div",
    { class: "alarm", "data-level": level, "data-alarm": name },
    el("div", {}, el("strong", {}, said(text)), el("p", {}, said(remedy ?? ""))),
    usable ? el("button", { type: "button", "data-key": `alarm-${name}`, onclick: act[1] }, act[0]) : "",
  );
}

async function resume() {
  try {
    await post("api/subscription/resume", { subscription: frame.subscription.name });
    toast("resumed: workers notice within a heartbeat");
  } catch (error) {
    context.failed(error);
  }
}

async function enter() {
  const given = await askToken("It was printed, behind #token=, when the page's server started. It stays in this tab.");
  if (!given) return;
  keep(given);
  stream.watch(chosen);
}

byId("access").addEventListener("click", () => {
  if (!mayAct) return enter();
  keep(null);
  mayAct = false;
  return stream.watch(chosen);
});

byId("subscription").addEventListener("change", (event) => {
  chosen = event.target.value;
  const query = new URLSearchParams({ subscription: chosen });
  history.replaceState(null, "", `${location.pathname}?${query}`);
  lists.forEach((list) => list.forget());
  event.target.blur();
  stream.watch(chosen);
});

addEventListener("hashchange", () => token() && stream.watch(chosen));
stream.watch(chosen);
