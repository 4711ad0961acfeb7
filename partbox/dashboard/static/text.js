// Elements and texts. Texts of events, errors and nodes become text nodes in an isolate, never markup.

export const byId = (id) => document.getElementById(id);

// el("td", { class: "number", title: "…" }, "text", child): attributes, then children; `on…` are listeners.
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

// A text of somebody else's: it keeps its direction of writing to itself.
export const said = (text, attributes = {}) => el("bdi", attributes, String(text ?? "–"));

export const number = (value) => Math.round(value).toLocaleString("en-US");

export function rate(value) {
  if (value === null) return "–";
  return value < 10 ? value.toFixed(1) : number(value);
}

// Seconds as people say them: "0.4 s", "12 s", "3 min", "5 h", "2 d".
export function length(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * size) return `${Math.round(seconds / size)} ${unit}`;
  }
  return seconds < 10 ? `${seconds.toFixed(1)} s` : `${Math.round(seconds)} s`;
}

// The same, in milliseconds below one second.
export const brief = (seconds) => (seconds === null || seconds >= 1 ? length(seconds) : `${(1000 * seconds).toFixed(seconds < 0.01 ? 1 : 0)} ms`);

export const counted = (count, what) => `${number(count)} ${what}${count === 1 ? "" : "s"}`;

// The age of a moment of the database at `now`; both are ISO texts.
export function ago(moment, now, after = " ago") {
  if (!moment) return el("span", {}, "–");
  const seconds = Math.max(0, (new Date(now) - new Date(moment)) / 1000);
  return el("time", { datetime: moment, title: moment }, `${length(seconds)}${after}`);
}

const WHOLE = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" };

// Date and time as ISO 8601 has them, where who looks is.
export const local = (moment) => new Date(moment).toLocaleString("sv-SE", WHOLE);

export const clock = (moment) => new Date(moment).toLocaleTimeString("en-GB");

// Have these children. What looks the same stays the element that it was, as what somebody is just pressing must; an
// element with a `data-key` keeps the focus.
export function show(place, ...children) {
  const key = place.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  merge(place, el("div", {}, ...children));
  if (key && !place.contains(document.activeElement)) place.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
}

function merge(place, next) {
  let old = place.firstChild;
  for (const child of [...next.childNodes]) {
    let same = old;
    while (same && !isSame(same, child)) same = same.nextSibling;
    if (!same) {
      place.insertBefore(child, old);
      continue;
    }
    dropBetween(old, same);
    old = same.nextSibling;
    merge(same, child);
  }
  dropBetween(old, null);
}

// Of what acts when it is pressed all must be equal: it has a listener that may know what it says.
function isSame(old, next) {
  if (old.nodeName !== next.nodeName || old.nodeType !== Node.ELEMENT_NODE) return old.isEqualNode(next);
  if (old.matches("button, input")) return old.isEqualNode(next);
  return old.attributes.length === next.attributes.length && [...old.attributes].every(({ name, value }) => next.getAttribute(name) === value);
}

function dropBetween(first, end) {
  while (first !== end) {
    const gone = first;
    first = first.nextSibling;
    gone.remove();
  }
}
