// Puts the page together: each frame of the stream is drawn, and asks for what may have changed beside it.

import { byId, clock, el, length, number, said, show } from "./text.js";
import { Charts } from "./charts.js";
import { PartitionMap } from "./map.js";
import { drawLately, drawParked, drawWorkers } from "./workers.js";
import { Troubles, drawDoctor } from "./troubles.js";
import { Blocked } from "./blocked.js";
import { Dead } from "./dead.js";
import { askToken, explain, toast } from "./ask.js";
import { Stream, keep, post, refusal, token } from "./link.js";
import { unlessPressed } from "./press.js";

let frame = null; // the last one
let lostAt = null; // when the stream broke
let rights = []; // what this viewer may do
let chosen = new URLSearchParams(location.search).get("subscription");

token();
const charts = new Charts(byId("charts"));
const map = new PartitionMap();
const troubles = new Troubles();
const context = {
  subscription: () => chosen || frame?.subscription?.name || "default",
  may: (action) => rights.includes(action),
  failed: (error) => toast(error.message, "bad"),
  changed: () => setTimeout(() => lists.forEach((list) => list.reload()), 300),
};
const [blocked, dead] = [new Blocked(context), new Dead(context)];
const lists = [blocked, dead];
const stream = new Stream({ frame: draw, lost });
const mayAct = () => rights.some((each) => each !== "look" && each !== "payload");

function draw(data) {
  frame = data;
  lostAt = null;
  if (String(rights) !== String(data.may)) {
    rights = data.may;
    lists.forEach((list) => list.redraw());
  }
  drawHead();
  unlessPressed(drawTroubles);
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
  unlessPressed(() => drawTroubles(error));
}

function drawHead(error = null) {
  const state = lostAt ? "lost" : frame?.error ? "stale" : frame ? "live" : "waiting";
  const words = { lost: "Connection lost", stale: "Database away", live: "Live", waiting: "Connecting …" };
  const connection = byId("connection");
  if (connection.dataset.state !== state || connection.textContent !== words[state]) {
    connection.dataset.state = state;
    connection.textContent = error?.status === 401 ? "Token needed" : words[state];
  }
  drawAccess();
  if (!frame) return;
  const { schema, database, version } = frame;
  byId("where").textContent = [database && `database ${database}`, `schema ${schema}`, `partbox ${version}`].filter(Boolean).join(" · ");
  drawDatabases();
  if (!frame.subscription) return;
  drawChoice();
  const { point, exact, lag, completed, parked } = frame.subscription;
  const open = point[3];
  const waits = open ? `${exact ? "" : "about "}${number(open)} waiting, the oldest for ${length(lag)}` : "nothing waits";
  const dead = parked.dead ? `${number(parked.dead)} dead` : null;
  byId("summary").textContent = [waits, dead, completed && `about ${number(completed)} done`].filter(Boolean).join(" · ");
  const wrong = frame.troubles.some(({ level }) => level !== "note");
  document.title = `${wrong ? "(!) " : ""}${open ? `${number(open)} waiting` : "partbox"} – ${database}`;
}

// With a token: whether this tab has it. Where an application says who may act: who looks.
function drawAccess() {
  const access = byId("access");
  const [acts, known] = [mayAct(), frame?.unlock === null];
  access.disabled = known;
  access.textContent = known ? `${frame.identity}${acts ? "" : ": read-only"}` : acts ? "Actions unlocked" : "Read-only: unlock";
  access.dataset.state = acts ? "open" : "closed";
  const [give, take] = ["This tab has the token: it may replay, skip and discard. Press to give it up.", "To replay, skip or discard, press here and paste the token that the server printed."];
  access.title = known ? `You may ${rights.join(", ")}.` : acts ? give : take;
}

// Of a node that works for several: each leads to a page of its own.
function drawDatabases() {
  const nav = byId("databases");
  nav.hidden = !frame.databases.length;
  const links = frame.databases.map(({ name, href, here, trouble }) => {
    const state = { "data-state": trouble ? "stale" : "live", "aria-current": here && "page", title: trouble };
    return el("a", { class: "chip", href, "data-key": `database-${href}`, ...state }, said(name), trouble && el("span", { class: "unseen" }, " has a problem"));
  });
  show(nav, ...links);
}

function drawChoice() {
  const options = frame.subscriptions.map(({ name, label, paused, dead }) => {
    const marks = [paused && "paused", dead && `${number(dead)} dead`].filter(Boolean).join(", ");
    return el("option", { value: name, selected: name === frame.subscription.name }, `${label}${marks ? ` (${marks})` : ""}`);
  });
  const left = frame.subscription_count - options.length;
  if (left > 0) options.push(el("option", { disabled: true }, `${number(left)} more: add ?subscription=NAME to the address`));
  const select = byId("subscription");
  if (document.activeElement !== select) show(select, ...options);
}

function drawTroubles(error = null) {
  const now = lostAt ? [] : [...ofDatabase(), ...ofDatabases()];
  const told = [...ofServer(error), ...ofToken(), ...now, ...(frame?.troubles ?? [])];
  const actions = {
    token: ["Enter the token", enter],
    choose: ["Show it", ({ subscription }) => choose(subscription)],
    visit: ["Show it", ({ href }) => location.assign(href)],
  };
  const acts = { resume: ["Resume", resume], ...blocked.actions, ...dead.actions };
  const allowed = Object.entries(acts).filter(([action]) => rights.includes(action));
  troubles.draw(told, { ...actions, ...Object.fromEntries(allowed) });
  drawDoctor(frame?.doctor, told);
}

// A trouble that the page itself has; `remedy` in words, and a command if there is one.
const trouble = (level, name, text, remedy, more = {}) => ({ level, name, text, evidence: [], remedy: [remedy], ...more });

function ofServer(error) {
  if (!lostAt) return [];
  if (error?.status === 401) {
    return [trouble("warn", "token", token() ? "That is not the token." : "This page is shown to those who have the token.", [[error.message, false]], { actions: ["token"] })];
  }
  if (error?.status === 403) return [trouble("bad", "refused", "The server refuses this page.", [[error.message, false]])];
  const since = frame?.at ? ` What is shown is of ${clock(frame.at)}.` : "";
  return [trouble("bad", "lost", `The page has lost its server.${since}`, [["It tries again by itself. Is the command that serves it still running?", false]])];
}

function ofToken() {
  if (lostAt || !frame || mayAct() || frame.unlock === null || !token()) return [];
  const remedy = frame.unlock ? "It was printed when the page's server started; partbox dashboard makes a new one each time." : "There is none: set PARTBOX_HTTP_TOKEN where the page is served.";
  const text = "The token of this tab is not the server's: the page only shows.";
  return [trouble("warn", "wrong-token", text, [[remedy, false]], frame.unlock ? { actions: ["token"] } : {})];
}

function ofDatabase() {
  if (!frame) return [];
  if (frame.error) {
    const since = frame.at ? ` What is shown is of ${clock(frame.at)}.` : "";
    return [trouble("bad", "database-away", `The database does not answer: ${frame.error}.${since}`, [["It tries again by itself. Nothing is delivered while workers cannot reach it either.", false]])];
  }
  if (frame.subscription) return [];
  if (!frame.subscriptions.length) {
    return [trouble("warn", "writer-only", "This schema has no subscription: nothing is delivered from here.", [["To deliver: ", false], ["partbox subscription create default", true]])];
  }
  return [trouble("warn", "missing", `There is no subscription ${chosen}.`, [["Choose another above.", false]])];
}

// Those that the node of this page cannot work for; what keeps this one from answering is said already.
function ofDatabases() {
  const wrong = (frame?.databases ?? []).filter(({ here, trouble }) => trouble && !(here && frame.error));
  return wrong.map(({ name, href, here, trouble: why }) => {
    const text = `This node does not work for database ${name}: ${why}.`;
    const remedy = [["It tries again by itself. Its other databases are not concerned.", false]];
    return trouble("bad", `database-${href}`, text, remedy, here ? {} : { actions: ["visit"], href });
  });
}

async function resume({ subscription }) {
  try {
    await post("api/subscription/resume", { subscription });
    toast("resumed: workers notice within a heartbeat");
  } catch (error) {
    context.failed(error);
  }
}

async function enter() {
  if (frame?.unlock === false) return explain("Nobody may act from here", "The server of this page has no token. Set PARTBOX_HTTP_TOKEN where it is served, and start it again.");
  const given = await askToken("The token is what stands behind #token= in the address that was printed when the page's server started, or its setting PARTBOX_HTTP_TOKEN. It is kept in this tab alone.", refusal);
  if (!given) return;
  keep(given);
  stream.watch(chosen);
}

byId("access").addEventListener("click", () => {
  if (!mayAct()) return enter();
  keep(null);
  rights = [];
  return stream.watch(chosen);
});

byId("subscription").addEventListener("change", (event) => {
  event.target.blur();
  choose(event.target.value);
});

function choose(subscription) {
  chosen = subscription;
  history.replaceState(null, "", `${location.pathname}?${new URLSearchParams({ subscription })}`);
  lists.forEach((list) => list.forget());
  stream.watch(chosen);
}

addEventListener("hashchange", () => token() && stream.watch(chosen));
stream.watch(chosen);
