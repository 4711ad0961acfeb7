// The troubles, on top of the page: what is wrong and since when; the one thing to do, what shows it, and other ways open below.

import { byId, clock, counted, el, length, said, show } from "./text.js";
import { toast } from "./ask.js";

const LEVELS = { bad: "Problem", warn: "Warning", note: "Note" };
const READ_FIRST = ["retry", "replay"]; // these open with the problem
const GIVE_UP = ["skip", "discard"]; // and these stand behind its evidence: nobody presses them before reading it

export class Troubles {
  #drawn = new Map(); // by name: an element stays as long as its trouble does, open or closed as somebody left it
  #actions = {}; // by name: [text, function] of what can be done now

  // `actions` by name: [text, function], those that are possible now; `at` is now.
  draw(troubles, actions, at) {
    this.#actions = actions;
    const names = new Set(troubles.map(({ name }) => name));
    for (const name of this.#drawn.keys()) if (!names.has(name)) this.#drawn.delete(name);
    const notes = troubles.filter(({ level }) => level === "note");
    const serious = ["bad", "warn"].flatMap((wanted) => troubles.filter(({ level }) => level === wanted));
    const drawn = (each) => this.#element(each, each === serious[0], at);
    place(byId("troubles"), serious.map(drawn));
    byId("notes").hidden = !notes.length;
    byId("notes-count").textContent = counted(notes.length, "note");
    place(byId("notes-list"), notes.map(drawn));
    announce(serious);
  }

  #element(trouble, first, at) {
    const { name, level, text, evidence, remedy, actions = [] } = trouble;
    if (!this.#drawn.has(name)) this.#drawn.set(name, made(name));
    const drawn = this.#drawn.get(name);
    const { element, fold, head, body, action } = drawn;
    element.dataset.level = level;
    show(head, el("span", { class: "level" }, LEVELS[level], since(trouble, at)), el("strong", {}, said(text)));
    const [todo, ...others] = remedy;
    const possible = actions.filter((each) => this.#actions[each]);
    const buttons = (wanted) => possible.filter(wanted).map((each) => this.#button(each, trouble));
    show(action, ...buttons((each) => ![...READ_FIRST, ...GIVE_UP].includes(each)));
    show(
      body,
      ...(todo ? [el("p", { class: "todo" }, el("b", {}, "Do this: "), ...spelled(todo, name, 0))] : []),
      el("p", { class: "act" }, ...buttons((each) => READ_FIRST.includes(each))),
      ...list("Evidence", evidence.map((line) => [said(line)])),
      ...list("Remedy", others.map((pieces, index) => spelled(pieces, name, index + 1))),
      el("p", { class: "act" }, ...buttons((each) => GIVE_UP.includes(each))),
    );
    // The first is open, unless somebody has folded it, and what somebody opened or reads stays open.
    drawn.chosen ||= fold.open !== drawn.open;
    if (!drawn.chosen && !(fold.open && element.matches(":hover, :focus-within"))) drawn.open = fold.open = first;
    return element;
  }

  #button(action, trouble) {
    return el("button", { type: "button", "data-key": `act-${trouble.name}-${action}`, onclick: () => this.#actions[action]?.[1](trouble) }, this.#actions[action][0]);
  }
}

function made(name) {
  const [head, body, action] = [el("summary"), el("div", { class: "body" }), el("div", { class: "act" })];
  const fold = el("details", {}, head, body);
  const element = el("article", { class: "trouble-row", "data-trouble": name }, fold, action);
  return { element, fold, head, body, action, open: false, chosen: false };
}

// A moment of another day has its date.
function since({ since: began }, at) {
  if (!began || !at) return "";
  const [then, seconds] = [new Date(began), (new Date(at) - new Date(began)) / 1000];
  const day = seconds > 43200 ? `${then.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ` : "";
  return el("time", { datetime: began, title: began }, ` since ${day}${clock(began).slice(0, 5)}, for ${length(seconds)}`);
}

function list(name, lines) {
  return lines.length ? [el("ul", { class: name.toLowerCase(), "aria-label": name }, ...lines.map((line) => el("li", {}, ...line)))] : [];
}

const spelled = (pieces, name, place) => pieces.flatMap(([text, code]) => (code ? command(text, `copy-${name}-${place}`) : [said(text)]));

// A single word is the name of a setting or the like, and not worth copying.
function command(text, key) {
  const code = el("code", {}, text);
  if (!/\s/.test(text)) return [code];
  return [code, " ", el("button", { type: "button", class: "copy", "data-key": key, "aria-label": `Copy ${text}`, onclick: copy }, "Copy")];
}

async function copy({ currentTarget }) {
  const code = currentTarget.parentElement.querySelector(`[data-key="${CSS.escape(currentTarget.dataset.key)}"]`).previousElementSibling;
  try {
    await navigator.clipboard.writeText(code.textContent);
    toast("copied");
  } catch {
    getSelection().selectAllChildren(code); // without https a page may not write to the clipboard
    toast("it is selected: copy it with Ctrl-C");
  }
}

// The elements in this order; those that are there already stay as they are.
function place(parent, elements) {
  for (const child of [...parent.children]) if (!elements.includes(child)) child.remove();
  elements.forEach((element, index) => {
    if (parent.children[index] !== element) parent.insertBefore(element, parent.children[index] ?? null);
  });
}

// For screen readers: once whenever the troubles change.
function announce(troubles) {
  const place = byId("announce");
  const names = troubles.map(({ name }) => name).join(" ");
  if (place.dataset.names === names) return;
  place.dataset.names = names;
  place.textContent = troubles.map(({ text }) => text).join(" ") || "No trouble.";
}

// The times of the last looks, in one line that is always there.
export function drawDoctor(doctor, troubles) {
  const line = byId("doctor");
  if (!doctor) return show(line);
  const { at, causes, error } = doctor;
  const [bad, warn] = ["bad", "warn"].map((name) => troubles.filter(({ level }) => level === name).length);
  const found = [bad && counted(bad, "problem"), warn && counted(warn, "warning")].filter(Boolean).join(", ");
  line.dataset.level = bad ? "bad" : warn ? "warn" : at ? "good" : "";
  const looked = at ? `partbox doctor looked for ${causes} causes of trouble at ${clock(at)}. ` : error ? "" : "partbox doctor is looking …";
  const failed = error ? [el("small", { class: "wrong" }, `partbox doctor could not look${at ? " again" : ""}: `, said(error))] : [];
  return show(line, el("strong", {}, found || (at ? "Nothing is wrong." : "No trouble is known yet.")), " ", el("small", {}, looked), ...failed);
}
