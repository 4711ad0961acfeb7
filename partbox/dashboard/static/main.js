// Puts the page together: each frame of the stream is drawn, and asks for what may have changed beside it.

import { byId, clock } from "./text.js";
import { go, onMove, place } from "./address.js";
import { Charts } from "./charts.js";
import { drawHead } from "./head.js";
import { Lags } from "./lags.js";
import { PartitionMap } from "./map.js";
import { drawLately, drawParked, drawWorkers } from "./workers.js";
import { Troubles, drawDoctor } from "./troubles.js";
import { Blocked } from "./blocked.js";
import { Dead } from "./dead.js";
import { ActionList } from "./actions.js";
import { Limits } from "./limits.js";
import { RecordDialog } from "./record.js";
import { Search } from "./search.js";
import { askToken, confirm, explain, toast } from "./ask.js";
import { Stream, keep, post, refusal, token } from "./link.js";
import { unlessPressed } from "./press.js";

let frame = null; // the last one
let lostAt = null; // when the stream broke
let rights = []; // what this viewer may do
let chosen = place().subscription;

token();
const charts = new Charts(byId("charts"));
const lags = new Lags();
const map = new PartitionMap();
const troubles = new Troubles();
const context = {
  subscription: () => chosen || frame?.subscription?.name || "default",
  seen: () => frame !== null,
  may: (action) => rights.includes(action),
  failed: (error) => toast(error.message, "bad"),
  traceUrl: () => frame?.trace_url,
  changed: () => {
    done.forget();
    setTimeout(() => lists.forEach((list) => list.reload()), 300);
  },
};
const done = new ActionList();
const record = new RecordDialog(context);
new Search();
const [blocked, dead] = [new Blocked(context), new Dead(context)];
const lists = [blocked, dead];
const limits = new Limits(context);
const stream = new Stream({ frame: heard, lost });
const mayAct = () => rights.some((each) => each !== "look" && each !== "payload");

function heard(data) {
  frame = data;
  lostAt = null;
  unlessPressed("frame", () => draw(data));
  if (data.subscription && data.error === null) refresh(data);
}

function draw(data) {
  if (String(rights) !== String(data.may)) {
    rights = data.may;
    lists.forEach((list) => list.redraw());
    record.reload();
  }
  lookAtHead();
  drawTroubles();
  if (!data.subscription) return;
  charts.draw(data.subscription.point, data.history);
  map.draw(data.subscription, data.at);
  drawWorkers(data.subscription, (place) => map.highlight(place));
  drawParked(data.subscription);
  limits.draw(data.subscription, data.at);
  drawLately(data.subscription);
}

const lookAtHead = (error = null) => drawHead({ frame, lost: lostAt !== null, error, acts: mayAct(), may: context.may });

function refresh({ subscription, at }) {
  const parked = subscription.parked;
  const mark = [subscription.name, subscription.blocked_keys, ...Object.entries(parked).flat()].join(" ");
  for (const list of lists) list.refresh(mark, at);
  lags.refresh(at, context.failed);
  done.refresh(at, context.failed);
}

function lost(error) {
  lostAt ??= new Date();
  unlessPressed("frame", () => {
    lookAtHead(error);
    drawTroubles(error);
  });
}

function drawTroubles(error = null) {
  const now = lostAt ? [] : [...ofDatabase(), ...ofDatabases()];
  const told = [...ofServer(error), ...ofToken(), ...now, ...(frame?.troubles ?? [])];
  const actions = {
    token: ["Enter the token", enter],
    choose: ["Show it", ({ subscription }) => go({ subscription })],
    visit: ["Show it", ({ href }) => location.assign(href)],
  };
  const acts = { resume: ["Resume", (each) => turn("resume", each.subscription)], ...blocked.actions, ...dead.actions };
  const allowed = Object.entries(acts).filter(([action]) => rights.includes(action));
  troubles.draw(told, { ...actions, ...Object.fromEntries(allowed) }, frame?.at);
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

// Pauses or resumes a subscription.
async function turn(verb, subscription) {
  try {
    await post(`api/subscription/${verb}`, { subscription });
    toast(`${verb}d: workers notice within a heartbeat`);
    done.forget();
  } catch (error) {
    context.failed(error);
  }
}

async function pause() {
  const { name } = frame.subscription;
  const consequence = "Its workers end what runs, then nothing is delivered until it is resumed. What is published meanwhile waits in the log.";
  if (await confirm({ question: `Pause subscription ${name}?`, consequence, yes: "Pause", danger: true })) await turn("pause", name);
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

byId("pause").addEventListener("click", pause);

byId("subscription").addEventListener("change", ({ target }) => {
  target.blur();
  go({ subscription: target.value });
});

onMove(() => {
  const { subscription } = place();
  if (subscription === chosen) return;
  chosen = subscription;
  lists.forEach((list) => list.forget());
  stream.watch(chosen);
});

addEventListener("hashchange", () => token() && stream.watch(chosen));
stream.watch(chosen);
