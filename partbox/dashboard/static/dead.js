// Dead records by type and error, and the ways out.

import { ago, byId, counted, el, number, said, show } from "./text.js";
import { confirm, toast, withProgress } from "./ask.js";
import { go, onMove, place } from "./address.js";
import { get, postLong } from "./link.js";
import { List, aggregate, button, recordLink, why } from "./list.js";

const LATER = "Events of their aggregates that were delivered meanwhile stay delivered.";
const FILTERS = ["event_type", "aggregate_id", "older_than"];

export class Dead extends List {
  what = "dead records";
  places = ["dead", "dead-tools", "dead-note"];
  columns = [["Record", "number"], ["Died"], ["Event type"], ["Aggregate"], ["Attempts", "number"], ["Error", "wide"]];
  verbs = {
    replay: { text: ["Replay", ""], path: "api/dead/replay", done: (done) => `replayed ${counted(done, "record")}` },
    discard: {
      text: ["Discard", " …"],
      path: "api/dead/discard",
      done: (done) => `discarded ${counted(done, "record")}`,
      consequence: "It is given up for good: it is never delivered, and a later purge removes it.",
    },
  };
  #filters = {};
  #pages = new Map(); // of each group, the record ids that its pages begin behind

  constructor(context) {
    super(context);
    for (const name of FILTERS) byId(`filter-${name}`).addEventListener("change", ({ target }) => go({ [name]: target.value.trim() }));
    onMove(() => this.#moved());
    this.#moved();
  }

  // The fields say what the address says, and so does the list.
  #moved() {
    const before = JSON.stringify(this.#filters);
    this.#filters = Object.fromEntries(Object.entries(place()).filter(([name]) => FILTERS.includes(name)));
    for (const name of FILTERS) byId(`filter-${name}`).value = this.#filters[name] ?? "";
    if (JSON.stringify(this.#filters) === before) return;
    this.#pages.clear();
    this.chosen.clear();
    this.found = null; // what is drawn is not what the filter says any more
    show(byId("dead-tools"));
    for (const each of byId("dead").querySelectorAll("button, input")) each.disabled = true;
    if (this.context.seen()) this.reload();
  }

  // What a problem offers, after a question with their number.
  actions = {
    replay: ["Replay all …", () => this.whenFound(() => this.#all("replay"))],
    discard: ["Discard all …", () => this.whenFound(() => this.#all("discard"))],
  };

  // With the filters of the request: those of the address may be newer. A group of one is shown as it came.
  async fetch(subscription) {
    const filters = this.#filters;
    const found = await get("api/dead-groups", { subscription, ...filters });
    const groups = await Promise.all(found.groups.map((each) => this.#filled(each, { subscription, ...filters }, found.count)));
    return { ...found, groups, filters };
  }

  async #filled(group, query, total) {
    if (group.records === 1) return { ...group, open: true, page: [group.newest], next: null };
    if (!this.isOpen(group.group, total)) return { ...group, open: false, page: [], next: null };
    const starts = this.#starts(group.group);
    const after = starts.at(-1);
    const { records, next } = await get("api/dead", { ...query, group: group.group, ...(after === null ? {} : { after }) });
    if (!records.length && starts.length > 1) {
      starts.pop();
      return this.#filled(group, query, total);
    }
    return { ...group, open: true, page: records, next };
  }

  forget() {
    super.forget();
    this.#pages.clear();
  }

  toggled() {
    this.reload();
  }

  #starts(group) {
    if (!this.#pages.has(group)) this.#pages.set(group, [null]);
    return this.#pages.get(group);
  }

  draw({ groups, count, more, filters }) {
    const filtered = Object.keys(filters).length > 0;
    byId("dead-filters").hidden = !count && !filtered;
    this.fill({
      note: count ? `${number(count)}${filtered ? " match" : ""}${more ? `, the ${groups.length} most frequent kinds` : ""}` : "none",
      tools: count ? this.#allButtons(`all ${number(count)}`, "all", () => null) : [],
      empty: filtered ? "No dead record matches." : "No record is dead. An event that has used up its attempts, or cannot ever succeed, comes here with its error, until it is replayed or discarded.",
      rows: groups.flatMap((each) => [...(each.records > 1 ? [this.#group(each)] : []), ...each.page.map((record) => this.#row(record)), ...this.#pager(each)]),
      records: groups.flatMap(({ page }) => page.map(({ record }) => record)),
    });
  }

  // Buttons that ask about all of a group, or of the subscription.
  #allButtons(count, key, group) {
    return this.may.map((verb) => button(`${this.verbs[verb].text[0]} ${count} …`, `${verb}-${key}`, () => this.#all(verb, group())));
  }

  #found(group) {
    return this.found.groups.find((each) => each.group === group);
  }

  #group({ group, records, blocking, open, died_from, died_to, newest }) {
    const blocks = blocking ? el("span", { class: "blocks" }, ` · ${counted(blocking, "aggregate")} blocked`) : "";
    return this.groupRow({
      group,
      title: [`${counted(records, "record")} of type `, said(newest.event_type)],
      open,
      error: why(newest),
      facts: el("span", {}, "died ", ago(died_from, this.now, ""), " to ", ago(died_to, this.now), blocks),
      actions: this.#allButtons(number(records), `group-${group}`, () => this.#found(group)),
    });
  }

  #pager({ group, next }) {
    const page = this.#pages.get(group)?.length ?? 1;
    if (page === 1 && next === null) return [];
    const pager = el(
      "div",
      { class: "pager" },
      button("Older", `older-${group}`, () => this.#turn(() => this.#starts(group).pop()), { disabled: page === 1 }),
      el("span", {}, `page ${page}`),
      button("Newer", `newer-${group}`, () => this.#turn(() => this.#starts(group).push(this.#found(group).next)), { disabled: next === null }),
    );
    return [this.wideRow({}, pager)];
  }

  #turn(step) {
    step();
    this.chosen.clear();
    this.reload();
  }

  #row(each) {
    return this.row(
      each,
      recordLink(each.record),
      ago(each.died_at, this.now),
      said(each.event_type),
      [aggregate(each), each.blocks ? el("small", { class: "blocks" }, " blocks it") : ""],
      number(each.attempts),
      why(each),
    );
  }

  // All of a group, or (null) all; as many as were counted, by the filters that they were found with.
  async #all(verb, group = null) {
    const subscription = this.of;
    const { filters } = this.found;
    const count = group ? group.records : this.found.count;
    const [name] = this.verbs[verb].text;
    const matching = Object.keys(filters).length ? " that match" : "";
    const those = group ? `of type ${group.newest.event_type} with this error${matching}` : matching.trim() || "of this subscription";
    const wanted = await confirm({
      question: `${name} ${counted(count, "dead record")}?`,
      consequence: verb === "replay" ? `All ${those}, in order per aggregate. ${LATER}` : `All ${those} are given up for good.`,
      yes: `${name} ${number(count)}`,
      danger: verb === "discard",
    });
    if (!wanted) return;
    const body = { subscription, filters: { ...filters, ...(group ? { group: group.group } : {}) } };
    let reached = 0;
    try {
      const done = await withProgress(`${name} dead records`, (progress, signal) =>
        postLong(`api/dead/${verb}-all`, body, (...step) => { [reached] = step; progress(...step); }, signal),
      );
      toast(`${verb}ed ${counted(done, "record")}`);
    } catch (error) {
      if (error.name === "AbortError") toast(`stopped: about ${number(reached)} are ${verb}ed`, "bad");
      else this.context.failed(error);
    }
    this.context.changed();
  }
}
