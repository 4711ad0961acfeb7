// The common parts of the lists of blocked aggregates and dead records.

import { byId, el, said, show } from "./text.js";
import { go } from "./address.js";
import { confirm, toast } from "./ask.js";
import { post } from "./link.js";
import { row, table } from "./table.js";
import { unlessPressed } from "./press.js";

const GENTLY = 10000; // milliseconds after which a list is asked for again, although nothing seems to have changed
const AT_ONCE = 1500; // and at the earliest
const FEW = 5; // records that are all shown from the start; of more, groups are opened one by one

// A list that is asked for when it may have changed, with what is chosen in it. What is done concerns what is drawn:
// `found`, null while there is none, of the subscription `of`. Listeners ask for both when they are called, as elements
// that look the same stay with the listeners that they have.
//
// A list says what it is: `what` and its `places` (the table, its tools, its note); `columns` between the box and the
// actions; `verbs` that act on records, by name: the `text` of a button around what it concerns, the `path`, the words
// when it is `done`, and the `consequence` that is asked about, if any, with a `field` for the answer.
export class List {
  chosen = new Set();
  found = null;
  of = null;
  #shown = []; // the records that can be chosen
  #asked = 0;
  #mark = null;
  #busy = false;
  #newest = 0; // the last request; answers of earlier ones are dropped
  #open = new Map(); // groups by whether their records are shown, from when they were first seen

  constructor(context) {
    this.context = context;
  }

  // `mark` changes when the list may have changed.
  async refresh(mark, now) {
    const age = Date.now() - this.#asked;
    if (this.#busy || age < AT_ONCE || (mark === this.#mark && age < GENTLY)) return;
    this.#mark = mark;
    await this.reload(now);
  }

  async reload(now = this.now) {
    const request = ++this.#newest;
    this.now = now;
    this.#busy = true;
    this.#asked = Date.now();
    const subscription = this.context.subscription();
    try {
      const found = await this.fetch(subscription);
      unlessPressed(this.what, () => this.#show(request, subscription, found));
    } catch (error) {
      if (request === this.#newest) this.context.failed(error);
    } finally {
      if (request === this.#newest) this.#busy = false;
    }
  }

  // Of an answer that nothing newer was asked after.
  #show(request, subscription, found) {
    if (request !== this.#newest || subscription !== this.context.subscription()) return;
    if (subscription !== this.of) this.chosen.clear();
    this.of = subscription;
    this.found = found;
    this.draw(found);
  }

  // Another subscription: nothing of this one can be chosen any more.
  forget() {
    this.chosen.clear();
    this.found = null;
    this.#newest++;
    this.#busy = false;
    this.#asked = 0;
    this.#mark = null;
    this.#open.clear();
    for (const name of this.places) show(byId(name));
  }

  // Calls `act` once there is something found: what a trouble offers may be chosen before the list has come.
  async whenFound(act) {
    if (!this.found) await this.reload();
    if (this.found) act();
  }

  redraw() {
    if (this.found) this.draw(this.found);
  }

  // True if the records of a group are shown; `total` counts those of all groups.
  isOpen(group, total) {
    if (!this.#open.has(group)) this.#open.set(group, total <= FEW);
    return this.#open.get(group);
  }

  toggle(group) {
    this.#open.set(group, !this.#open.get(group));
    this.toggled(group);
  }

  // The verbs that this viewer may do.
  get may() {
    return Object.keys(this.verbs).filter((verb) => this.context.may(verb));
  }

  // Shows `rows`, of which `records` can be chosen, or the `empty` text; `more` stands below.
  fill({ note, tools, empty, rows, records, more = "" }) {
    const [place, toolbar, line] = this.places.map(byId);
    this.#shown = records;
    for (const record of this.chosen) if (!records.includes(record)) this.chosen.delete(record); // it is not shown any more
    line.textContent = note;
    show(toolbar, ...(this.may.length && this.chosen.size ? this.buttons(` ${this.chosen.size}`, "chosen", () => [...this.chosen]) : tools));
    if (!rows.length) return show(place, el("p", { class: "empty" }, empty));
    const all = this.may.length && records.length ? this.#box(null, records) : el("span", { class: "unseen" }, "Choice");
    return show(place, table([[all, "choose"], ...this.columns, [el("span", { class: "unseen" }, "Actions"), "actions"]], rows), more);
  }

  // A button for each verb; `records()` says of what, when one is pressed.
  buttons(count, key, records) {
    return this.may.map((verb) => {
      const [before, after] = this.verbs[verb].text;
      return button(`${before}${count}${after}`, `${verb}-${key}`, () => this.change(verb, records()));
    });
  }

  // The row of a record, with a box before the cells and the actions behind them.
  row({ record }, ...cells) {
    return row({ "data-record": record }, this.may.length ? this.#box(record) : "", ...cells, this.buttons("", record, () => [record]));
  }

  // A row for a whole group.
  wideRow(attributes, child) {
    return el("tr", { class: "group", role: "row", ...attributes }, el("td", { colspan: this.columns.length + 2, role: "cell" }, child));
  }

  // A row above those of a group: its description, the error of one, and the actions for all.
  groupRow({ group, title, open, error, facts, actions }) {
    const fold = button(title, `fold-${group}`, () => this.toggle(group), { class: "fold", "aria-expanded": String(open) });
    const words = el("div", {}, fold, " ", el("span", { class: "group-facts" }, facts), el("div", {}, error));
    return this.wideRow({ "data-group": group }, el("div", { class: "group-head" }, words, el("span", { class: "actions" }, ...actions)));
  }

  // A checkbox for one, or (record null) for all that are shown.
  #box(record, records) {
    const all = record === null;
    const checked = all ? records.length > 0 && records.every((each) => this.chosen.has(each)) : this.chosen.has(record);
    const box = el("input", {
      type: "checkbox",
      checked,
      "aria-label": all ? `Choose all ${this.what} of this page` : `Choose record ${record}`,
      "data-key": `box-${record ?? "all"}`,
    });
    box.addEventListener("change", () => {
      for (const each of all ? this.#shown : [record]) this.chosen[box.checked ? "add" : "delete"](each);
      this.redraw();
    });
    return box;
  }

  // Acts on records of what is drawn, after a question if the verb has one.
  async change(verb, records) {
    const subscription = this.of;
    const { text: [name], path, consequence, field, done } = this.verbs[verb];
    const what = records.length === 1 ? `record ${records[0]}` : `${records.length} records`;
    const answer = !consequence || (await confirm({ question: `${name} ${what}?`, consequence, yes: name, danger: true, field }));
    if (answer === null) return;
    try {
      const result = await post(path, { subscription, records, ...(field && { reason: answer }) });
      const failed = [...new Set(result.failed.map(({ why }) => why))].join(" · ");
      const nothing = result.done ? "" : "nothing had to be done: it waits only for a worker";
      toast([result.done ? done(result.done) : failed ? "" : nothing, failed].filter(Boolean).join(" · "), failed ? "bad" : "good");
      for (const record of records) this.chosen.delete(record);
    } catch (error) {
      this.context.failed(error);
    }
    this.context.changed();
  }
}

export const button = (text, key, click, attributes = {}) =>
  el("button", { type: "button", onclick: click, "data-key": key, ...attributes }, ...[text].flat());

export const aggregate = ({ aggregate_type, aggregate_id }) =>
  el("span", { class: "aggregate" }, said(aggregate_type, { class: "kind" }), aggregate_id === null ? "" : " ", aggregate_id === null ? "" : said(aggregate_id));

export const why = ({ error_type, error }) =>
  el("span", { class: "error" }, error_type ? said(error_type, { class: "kind" }) : "", error_type && error ? " " : "", error ? said(error) : "");

export const recordLink = (record, key = "show") => button(String(record), `${key}-${record}`, () => go({ record: String(record) }), { class: "link", "aria-label": `Show record ${record}` });
