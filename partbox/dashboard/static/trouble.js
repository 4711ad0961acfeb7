// Blocked aggregates and dead records, and what can be done about them.

import { ago, byId, counted, el, length, number, said, show } from "./text.js";
import { confirm, details, toast, withProgress } from "./ask.js";
import { get, post, postLong } from "./link.js";

const LATER = "What was delivered of their aggregates meanwhile stays delivered.";
const FILTERS = ["event_type", "aggregate_id", "older_than"];
const GENTLY = 10000; // milliseconds after which a list is asked for again, although nothing seems to have changed
const AT_ONCE = 1500; // and at the earliest

// A list that is asked for when it may have changed, with what is chosen in it. What is done concerns what is drawn:
// `found`, null while there is none, of the subscription `of`. Listeners ask for both when they are called, as elements
// that look the same stay with the listeners that they have.
class List {
  chosen = new Set();
  found = null;
  of = null;
  #asked = 0;
  #mark = null;
  #busy = false;
  #newest = 0; // the last request; answers of earlier ones are dropped

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
      if (request === this.#newest && subscription === this.context.subscription()) this.#take(subscription, found);
    } catch (error) {
      if (request === this.#newest) this.context.failed(error);
    } finally {
      if (request === this.#newest) this.#busy = false;
    }
  }

  #take(subscription, found) {
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
    for (const name of this.places) show(byId(name));
  }

  redraw() {
    if (this.found) this.draw(this.found);
  }

  // A checkbox for one, or (record null) for all of the page.
  box(record, records) {
    const all = record === null;
    const checked = all ? records.length > 0 && records.every((each) => this.chosen.has(each)) : this.chosen.has(record);
    const box = el("input", {
      type: "checkbox",
      checked,
      "aria-label": all ? `Choose all ${this.what} of this page` : `Choose record ${record}`,
      "data-key": `box-${record ?? "all"}`,
    });
    box.addEventListener("change", () => {
      for (const each of all ? records : [record]) this.chosen[box.checked ? "add" : "delete"](each);
      this.redraw();
    });
    return box;
  }

  // Keep only those chosen that are still there.
  prune(records) {
    for (const record of this.chosen) if (!records.includes(record)) this.chosen.delete(record);
  }

  async act(path, body, done) {
    try {
      const result = await post(path, body);
      const failed = result.failed.map(({ why }) => why).join(" · ");
      const nothing = result.done ? "" : "nothing had to be done: it waits only for a worker";
      toast([result.done ? done(result.done) : failed ? "" : nothing, failed].filter(Boolean).join(" · "), failed ? "bad" : "good");
      for (const record of body.records ?? []) this.chosen.delete(record);
    } catch (error) {
      this.context.failed(error);
    }
    this.context.changed();
  }
}

const button = (text, key, click, attributes = {}) =>
  el("button", { type: "button", onclick: click, "data-key": key, ...attributes }, text);

const aggregate = ({ aggregate_type, aggregate_id }) =>
  el("span", { class: "aggregate" }, said(aggregate_type, { class: "kind" }), aggregate_id === null ? "" : " ", aggregate_id === null ? "" : said(aggregate_id));

const why = ({ error_type, error }) =>
  el("span", { class: "error" }, error_type ? said(error_type, { class: "kind" }) : "", error_type && error ? " " : "", error ? said(error) : "");

function table(heads, rows) {
  const head = heads.map(([name, kind]) => el("th", { scope: "col", class: kind ?? null }, name));
  return el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows));
}

const MOST = 500; // blocked aggregates that are shown; the server shows no more, and takes no more at once

export class Blocked extends List {
  what = "blocked aggregates";
  places = ["blocked", "blocked-tools", "blocked-note"];
  #limit = 50;

  fetch(subscription) {
    return get("api/blocked", { subscription, limit: this.#limit });
  }

  draw({ keys, more }) {
    const records = keys.map(({ record }) => record);
    const may = this.context.mayAct();
    this.prune(records);
    byId("blocked-note").textContent = keys.length ? `${more ? "the " : ""}${number(keys.length)}${more ? " longest blocked" : ""}` : "none";
    const chosen = this.chosen.size;
    show(
      byId("blocked-tools"),
      ...(may && chosen
        ? [
            button(`Retry ${chosen} now`, "retry-chosen", () => this.#retry([...this.chosen])),
            button(`Skip ${chosen} …`, "skip-chosen", () => this.#skip([...this.chosen])),
          ]
        : []),
    );
    if (!keys.length) {
      show(byId("blocked"), el("p", { class: "empty" }, "No aggregate is blocked. When an event fails, the later ones of its aggregate wait here behind it, in order."));
      return;
    }
    const heads = [[may ? this.box(null, records) : ""], ["Aggregate"], ["Waits for"], ["State"], ["Attempts", "number"], ["Behind it", "number"], ["Blocked"], ["Worker"], ["Error"], [el("span", { class: "unseen" }, "Actions")]];
    const rows = keys.map((each) => this.#row(each, may));
    const rest = more && this.#limit < MOST ? button("Show more", "more", () => this.#showMore()) : "";
    show(byId("blocked"), table(heads, rows), rest);
  }

  #showMore() {
    this.#limit = Math.min(MOST, this.#limit + 100);
    this.reload();
  }

  #row(each, may) {
    const due = each.due_at && new Date(each.due_at) > new Date(this.now) ? ` · due in ${length((new Date(each.due_at) - new Date(this.now)) / 1000)}` : "";
    return el(
      "tr",
      { "data-record": each.record },
      el("td", {}, may ? this.box(each.record) : ""),
      el("td", {}, aggregate(each)),
      el("td", {}, said(each.event_type), el("small", {}, ` record ${each.record}`)),
      el("td", {}, el("span", { class: "parked-state", "data-parked": each.state }, each.state), due),
      el("td", { class: "number" }, number(each.attempts)),
      el("td", { class: "number" }, number(each.followers)),
      el("td", {}, ago(each.since, this.now)),
      el("td", {}, each.pid === null ? "none" : said(`${each.node} ${each.pid}`)),
      el("td", { class: "wide" }, why(each)),
      el(
        "td",
        { class: "actions" },
        may ? button("Retry now", `retry-${each.record}`, () => this.#retry([each.record])) : "",
        may ? button("Skip …", `skip-${each.record}`, () => this.#skip([each.record])) : "",
      ),
    );
  }

  #retry(records) {
    return this.act("api/blocked/retry", { subscription: this.of, records }, (done) => `${counted(done, "aggregate")} may go on now`);
  }

  async #skip(records) {
    const subscription = this.of;
    const what = records.length === 1 ? `record ${records[0]}` : `${records.length} records`;
    const reason = await confirm({
      question: `Skip ${what}?`,
      consequence: "Their aggregates go on without them. A skipped record is dead: it can be replayed later.",
      yes: "Skip",
      danger: true,
      field: "Reason",
    });
    if (reason === null) return;
    await this.act("api/blocked/skip", { subscription, records, reason }, (done) => `skipped ${counted(done, "record")}`);
  }
}

export class Dead extends List {
  what = "dead records";
  places = ["dead", "dead-tools", "dead-note", "dead-pager"];
  #pages = [null]; // the record id that each page begins behind

  constructor(context) {
    super(context);
    for (const name of FILTERS) {
      byId(`filter-${name}`).addEventListener("change", () => {
        this.#pages = [null];
        this.chosen.clear();
        this.found = null; // what is drawn is not what the filter says any more
        show(byId("dead-tools"));
        show(byId("dead-pager"));
        this.reload();
      });
    }
  }

  // With the filters that it was asked with: what the fields say may be newer.
  async fetch(subscription) {
    const filters = this.#filters();
    const after = this.#pages[this.#pages.length - 1];
    const found = await get("api/dead", { subscription, ...filters, ...(after === null ? {} : { after }) });
    return { ...found, filters };
  }

  forget() {
    super.forget();
    this.#pages = [null];
  }

  #filters() {
    const given = FILTERS.map((name) => [name, byId(`filter-${name}`).value.trim()]);
    return Object.fromEntries(given.filter(([, value]) => value));
  }

  draw({ records: found, count, next, filters }) {
    if (!found.length && this.#pages.length > 1) {
      this.#pages.pop();
      this.reload();
      return;
    }
    const records = found.map(({ record }) => record);
    const may = this.context.mayAct();
    const filtered = Object.keys(filters).length > 0;
    this.prune(records);
    byId("dead-note").textContent = count ? `${number(count)}${filtered ? " match" : ""}` : "none";
    byId("dead-filters").hidden = !count && !filtered;
    show(byId("dead-tools"), ...(may && count ? this.#tools(count) : []));
    show(byId("dead-pager"), ...this.#pager(next));
    if (!found.length) {
      const text = filtered ? "No dead record matches." : "No record is dead. An event that has used up its attempts, or cannot ever succeed, comes here with its error, until it is replayed or discarded.";
      show(byId("dead"), el("p", { class: "empty" }, text));
      return;
    }
    const heads = [[may ? this.box(null, records) : ""], ["Record", "number"], ["Died"], ["Event type"], ["Aggregate"], ["Attempts", "number"], ["Error"], [el("span", { class: "unseen" }, "Actions")]];
    show(byId("dead"), table(heads, found.map((each) => this.#row(each, may))));
  }

  #tools(count) {
    const chosen = this.chosen.size;
    if (chosen) {
      return [
        button(`Replay ${chosen}`, "replay-chosen", () => this.#replay([...this.chosen])),
        button(`Discard ${chosen} …`, "discard-chosen", () => this.#discard([...this.chosen])),
      ];
    }
    return [
      button(`Replay all ${number(count)} …`, "replay-all", () => this.#all("replay", this.found)),
      button(`Discard all ${number(count)} …`, "discard-all", () => this.#all("discard", this.found)),
    ];
  }

  #pager(next) {
    if (this.#pages.length === 1 && next === null) return [];
    return [
      button("Older", "older", () => this.#turn(() => this.#pages.pop()), { disabled: this.#pages.length === 1 }),
      el("span", {}, `page ${this.#pages.length}`),
      button("Newer", "newer", () => this.#turn(() => this.#pages.push(this.found.next)), { disabled: next === null }),
    ];
  }

  #turn(step) {
    step();
    this.chosen.clear();
    this.reload();
  }

  #row(each, may) {
    return el(
      "tr",
      { "data-record": each.record },
      el("td", {}, may ? this.box(each.record) : ""),
      el("td", { class: "number" }, button(String(each.record), `show-${each.record}`, () => this.#show(each.record), { class: "link", "aria-label": `Show record ${each.record}` })),
      el("td", {}, ago(each.died_at, this.now)),
      el("td", {}, said(each.event_type)),
      el("td", {}, aggregate(each), each.blocks ? el("small", { class: "blocks" }, " blocks it") : ""),
      el("td", { class: "number" }, number(each.attempts)),
      el("td", { class: "wide" }, why(each)),
      el(
        "td",
        { class: "actions" },
        may ? button("Replay", `replay-${each.record}`, () => this.#replay([each.record])) : "",
        may ? button("Discard …", `discard-${each.record}`, () => this.#discard([each.record])) : "",
      ),
    );
  }

  #replay(records) {
    return this.act("api/dead/replay", { subscription: this.of, records }, (done) => `replayed ${counted(done, "record")}`);
  }

  async #discard(records) {
    const subscription = this.of;
    const what = records.length === 1 ? `record ${records[0]}` : `${records.length} records`;
    const wanted = await confirm({
      question: `Discard ${what}?`,
      consequence: "It is given up for good: it counts as done, and a later purge removes it.",
      yes: "Discard",
      danger: true,
    });
    if (wanted) await this.act("api/dead/discard", { subscription, records }, (done) => `discarded ${counted(done, "record")}`);
  }

  // What `found` counted, by the filters that it was found with.
  async #all(verb, { count, filters }) {
    const subscription = this.of;
    const name = `${verb[0].toUpperCase()}${verb.slice(1)}`;
    const those = Object.keys(filters).length ? "that match" : "of this subscription";
    const wanted = await confirm({
      question: `${name} ${counted(count, "dead record")}?`,
      consequence: verb === "replay" ? `All ${those}, in order per aggregate. ${LATER}` : `All ${those} are given up for good.`,
      yes: `${name} ${number(count)}`,
      danger: verb === "discard",
    });
    if (!wanted) return;
    const body = { subscription, filters };
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

  async #show(record) {
    try {
      const found = await get(`api/dead/${record}`, { subscription: this.of });
      const may = this.context.mayAct();
      const choice = await details(`Record ${record}`, whole(found), may ? [{ text: "Replay", value: "replay" }, { text: "Discard …", danger: true, value: "discard" }] : []);
      if (choice === "replay") await this.#replay([record]);
      if (choice === "discard") await this.#discard([record]);
    } catch (error) {
      this.context.failed(error);
    }
  }
}

function whole(found) {
  return [
    ["Event", found.event ?? "gone from the log"],
    ["Type", said(found.event_type)],
    ["Aggregate", said(found.aggregate_id === null ? found.aggregate_type : `${found.aggregate_type} ${found.aggregate_id}`)],
    ...(found.tenant_id === null ? [] : [["Tenant", said(found.tenant_id)]]),
    ["Occurred", found.occurred_at ?? "–"],
    ["Published", found.published_at ?? "–"],
    ["Died", found.died_at],
    ["Attempts", number(found.attempts)],
    ["Error", el("pre", { tabindex: "0" }, said([found.error_type, found.error].filter(Boolean).join(": ") || "–"))],
  ];
}
