// The head of the page: where it is, what waits, whether it is alive, and who looks.

import { byId, el, length, number, said, show } from "./text.js";

// `lost`: whether the server is gone, with the `error`; `acts`: whether this viewer may act, `may(action)` how.
export function drawHead({ frame, lost, error, acts, may }) {
  const state = lost ? "lost" : frame?.error ? "stale" : frame ? "live" : "waiting";
  const words = { lost: "Connection lost", stale: "Database away", live: "Live", waiting: "Connecting …" };
  const connection = byId("connection");
  if (connection.dataset.state !== state || connection.textContent !== words[state]) {
    connection.dataset.state = state;
    connection.textContent = error?.status === 401 ? "Token needed" : words[state];
  }
  drawAccess(frame, acts);
  if (!frame) return;
  drawEnvironment(frame);
  const { schema, database, version } = frame;
  byId("where").textContent = [database && `database ${database}`, `schema ${schema}`, `partbox ${version}`].filter(Boolean).join(" · ");
  drawDatabases(frame);
  if (!frame.subscription) return;
  drawChoice(frame);
  byId("pause").hidden = frame.subscription.paused || !may("pause"); // a paused one is a trouble, which is resumed there
  const { point, exact, lag, completed, parked } = frame.subscription;
  const open = point[3];
  const waits = open ? `${exact ? "" : "about "}${number(open)} waiting, the oldest for ${length(lag)}` : "nothing waits";
  const dead = parked.dead ? `${number(parked.dead)} dead` : null;
  byId("summary").textContent = [waits, dead, completed && `about ${number(completed)} done`].filter(Boolean).join(" · ");
  const wrong = frame.troubles.some(({ level }) => level !== "note");
  const name = frame.environment ? `${frame.environment}: ` : "";
  document.title = `${wrong ? "(!) " : ""}${name}${open ? `${number(open)} waiting` : "partbox"} – ${database}`;
}

// With a token: whether this tab has it. Where an application says who may act: who looks.
function drawAccess(frame, acts) {
  const access = byId("access");
  const known = frame?.unlock === null;
  access.disabled = known;
  access.textContent = known ? `${frame.identity}${acts ? "" : ": read-only"}` : acts ? "Actions unlocked" : "Read-only: unlock";
  access.dataset.state = acts ? "open" : "closed";
  const [give, take] = ["This tab has the token: it may replay, skip and discard. Press to give it up.", "To replay, skip or discard, press here and paste the token that the server printed."];
  access.title = known ? `You may ${frame.may.join(", ")}.` : acts ? give : take;
}

// Which of several installations this is: nobody is to take production for another.
function drawEnvironment({ environment, colour }) {
  const badge = byId("environment");
  badge.hidden = !environment;
  badge.textContent = environment ?? "";
  document.body.dataset.colour = environment ? colour : "";
}

// Of a node that works for several: each leads to a page of its own.
function drawDatabases(frame) {
  const nav = byId("databases");
  nav.hidden = !frame.databases.length;
  const links = frame.databases.map(({ name, href, here, trouble }) => {
    const state = { "data-state": trouble ? "stale" : "live", "aria-current": here && "page", title: trouble };
    return el("a", { class: "chip", href, "data-key": `database-${href}`, ...state }, said(name), trouble && el("span", { class: "unseen" }, " has a problem"));
  });
  show(nav, ...links);
}

function drawChoice(frame) {
  const options = frame.subscriptions.map(({ name, label, paused, dead }) => {
    const marks = [paused && "paused", dead && `${number(dead)} dead`].filter(Boolean).join(", ");
    return el("option", { value: name, selected: name === frame.subscription.name }, `${label}${marks ? ` (${marks})` : ""}`);
  });
  const left = frame.subscription_count - options.length;
  if (left > 0) options.push(el("option", { disabled: true }, `${number(left)} more: add ?subscription=NAME to the address`));
  const select = byId("subscription");
  if (document.activeElement !== select) show(select, ...options);
}
