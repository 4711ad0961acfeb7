// Blocked aggregates, grouped by the reason for waiting, and the ways out.

import { ago, counted, el, length, number, said } from "./text.js";
import { get } from "./link.js";
import { List, aggregate, button, recordLink, why } from "./list.js";

const MOST = 500; // blocked aggregates that are shown; the server shows no more, and takes no more at once

// A word that names a thing in an error has a digit in it, or quotes around it.
const alike = (text) => (text ?? "").replace(/'[^']*'|"[^"]*"|[\w-]*\d[\w-]*/g, "#");

// Events that wait for a circuit are deferred for one error, whatever their type is, and whether they met it or were not
// even tried: the reason of those ends with it.
const met = ({ error_type, error }) => [error_type, error].filter(Boolean).join(": ").replace(/^.* waits for its downstream: /, "");

const reason = (each) => [each.state === "deferred" ? each.state : each.event_type, alike(met(each))].join(" ");

export class Blocked extends List {
  what = "blocked aggregates";
  places = ["blocked", "blocked-tools", "blocked-note"];
  columns = [["Aggregate"], ["Waits for event"], ["State"], ["Attempts", "number"], ["Behind it", "number"], ["Blocked since"], ["Worker"], ["Error", "wide"]];
  verbs = {
    retry: { text: ["Retry", " now"], path: "api/blocked/retry", done: (done) => `${counted(done, "aggregate")} may go on now` },
    skip: {
      text: ["Skip", " …"],
      path: "api/blocked/skip",
      done: (done) => `skipped ${counted(done, "record")}`,
      consequence: "Their aggregates go on without them. A skipped record is dead: it can be replayed later.",
      field: "Reason",
    },
  };
  #limit = 50;

  // What a problem offers, for all that is shown.
  actions = {
    retry: ["Retry all now", () => this.whenFound(() => this.change("retry", this.#all()))],
    skip: ["Skip all …", () => this.whenFound(() => this.change("skip", this.#all()))],
  };

  fetch(subscription) {
    return get("api/blocked", { subscription, limit: this.#limit });
  }

  toggled() {
    this.redraw();
  }

  draw({ keys, more }) {
    const groups = this.#groups(keys);
    this.fill({
      note: keys.length ? `${more ? "the " : ""}${number(keys.length)}${more ? " longest blocked" : ""}` : "none",
      tools: [],
      empty: "No aggregate is blocked. When an event fails, the later events of its aggregate wait behind it, so that they stay in order. They are listed here.",
      rows: groups.flatMap((group) => [...(group.keys.length > 1 ? [this.#group(group)] : []), ...(group.open ? group.keys.map((each) => this.#row(each)) : [])]),
      records: groups.flatMap(({ open, keys }) => (open ? keys : [])).map(({ record }) => record),
      more: more && this.#limit < MOST ? button("Show more", "more", () => this.#showMore()) : "",
    });
  }

  #all() {
    return this.found.keys.map(({ record }) => record);
  }

  #groups(keys) {
    return [...Map.groupBy(keys, reason)].map(([group, keys_]) => ({ group, keys: keys_, open: keys_.length === 1 || this.isOpen(group, keys.length) }));
  }

  #showMore() {
    this.#limit = Math.min(MOST, this.#limit + 100);
    this.reload();
  }

  #group({ group, keys, open }) {
    const types = new Set(keys.map(({ event_type }) => event_type));
    const states = new Map();
    for (const { state } of keys) states.set(state, (states.get(state) ?? 0) + 1);
    const behind = keys.reduce((sum, { followers }) => sum + followers, 0);
    const words = [...states].map(([state, count]) => (states.size > 1 ? `${number(count)} ${state}` : state));
    const records = () => this.#groups(this.found.keys).find((each) => each.group === group).keys.map(({ record }) => record);
    return this.groupRow({
      group,
      title: [`${counted(keys.length, "aggregate")} wait for `, types.size > 1 ? `events of ${types.size} types` : said(keys[0].event_type)],
      open,
      error: why(keys[0]),
      facts: [words.join(", "), `${counted(behind, "event")} behind`, `longest blocked ${length(since(keys[0], this.now))}`].join(" · "),
      actions: this.buttons(` ${number(keys.length)}`, `group-${group}`, records),
    });
  }

  #row(each) {
    const left = each.due_at ? (new Date(each.due_at) - new Date(this.now)) / 1000 : 0;
    return this.row(
      each,
      aggregate(each),
      [said(each.event_type), " ", recordLink(each.record)],
      [el("span", { class: "parked-state", "data-parked": each.state }, each.state), left > 0 ? ` · due in ${length(left)}` : ""],
      number(each.attempts),
      number(each.followers),
      ago(each.since, this.now),
      each.pid === null ? "none" : said(`${each.node} ${each.pid}`),
      why(each),
    );
  }
}

const since = (each, now) => Math.max(0, (new Date(now) - new Date(each.since)) / 1000);
