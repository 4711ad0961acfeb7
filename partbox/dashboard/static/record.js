// One record: what it is, what became of it in each subscription, its story, its headers and, if asked for, its payload.

import { byId, el, local, number, said, show } from "./text.js";
import { go, onMove, place } from "./address.js";
import { confirm, toast } from "./ask.js";
import { get, post } from "./link.js";
import { button } from "./list.js";
import { payloadTree } from "./payload.js";

const dialog = byId("record");

// What can be done about a record, by its state in a subscription.
const VERBS = {
  replay: { states: ["dead"], text: "Replay", path: "api/dead/replay", done: "replayed" },
  discard: { states: ["dead"], text: "Discard …", path: "api/dead/discard", done: "discarded", consequence: "It is given up for good: it counts as done, and a later purge removes it." },
  retry: { states: ["retrying", "deferred"], text: "Retry now", path: "api/blocked/retry", done: "it may go on now" },
  skip: { states: ["retrying", "deferred"], text: "Skip …", path: "api/blocked/skip", done: "skipped", consequence: "Its aggregate goes on without it. It is dead then: it can be replayed later." },
};

export class RecordDialog {
  #shown = null; // the id
  #turn = 0; // of requests: a later one has the word
  #payload = null; // of the record whose payload was asked for: it stays while the rest is drawn anew

  constructor(context) {
    this.context = context;
    dialog.addEventListener("close", () => go({ record: null }));
    onMove(() => this.#moved());
    this.#moved();
  }

  #moved() {
    const { record = null } = place();
    if (record === this.#shown) return;
    this.#shown = record;
    this.#payload = null;
    this.#turn++;
    if (record === null) return dialog.close();
    show(dialog);
    this.reload();
  }

  async reload() {
    const record = this.#shown;
    if (record === null) return;
    const turn = ++this.#turn;
    try {
      const found = await get(`api/records/${encodeURIComponent(record)}`, {});
      if (turn === this.#turn) this.#draw(found);
    } catch (error) {
      if (turn === this.#turn) show(dialog, ...head(`Record ${record}`), el("p", { class: "wrong", role: "alert" }, said(error.message)));
    }
    if (this.#shown !== null && !dialog.open) dialog.showModal();
  }

  #draw(found) {
    const asked = this.#payload?.record === found.record;
    const payload = asked ? this.#payload.place : el("div", { class: "payload", id: "payload" });
    const headers = found.headers.map(([name, value]) => fact(name, value));
    dialog.replaceChildren(
      ...head(`Record ${found.record}`),
      el("dl", { class: "whole" }, ...this.#facts(found)),
      el("h3", {}, "What became of it"),
      ...found.standings.flatMap((each) => this.#standing(found.record, each)),
      el("h3", {}, "Timeline"),
      el("ol", { class: "timeline" }, ...found.timeline.map(moment)),
      ...(headers.length ? [el("h3", {}, "Headers"), el("dl", { class: "whole", id: "headers" }, ...headers)] : []),
      el("h3", {}, "Payload"),
      payload,
    );
    if (!asked) this.#offer(payload, found);
  }

  #facts({ event, event_type, aggregate_type, aggregate_id, tenant_id, idempotency_key, published_at, occurred_at, available_at, partition, size, content_type, trace }) {
    const template = this.context.traceUrl();
    const link = trace && template ? el("a", { href: template.replaceAll("{trace_id}", encodeURIComponent(trace)), target: "_blank", rel: "noopener noreferrer" }, trace) : trace;
    const told = [
      ["Type", event_type],
      ["Aggregate", aggregate_id === null ? aggregate_type : `${aggregate_type} ${aggregate_id}`],
      ["Tenant", tenant_id],
      ["Event", event],
      ["Key", idempotency_key],
      ["Published", time(published_at)],
      ["Occurred", occurred_at === published_at ? null : time(occurred_at)],
      ["Not before", available_at && time(available_at)],
      ["Partition", String(partition)],
      ["Size", `${number(size)} bytes${content_type ? ` of ${content_type}` : ""}`],
      ["Trace", link],
    ];
    return told.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => fact(name, value));
  }

  #standing(record, { subscription, label, state, summary, error, traceback }) {
    const acts = Object.keys(VERBS).filter((verb) => VERBS[verb].states.includes(state) && this.context.may(verb));
    const buttons = acts.map((verb) => button(VERBS[verb].text, `record-${verb}-${subscription}`, () => this.#act(verb, record, subscription)));
    const words = el("p", {}, said(label, { class: "kind" }), " ", said(summary, { class: "parked-state", "data-parked": state }));
    return [el("div", { class: "group-head standing-of" }, words, el("span", { class: "actions" }, ...buttons)), ...(error ? [block(error, "Error")] : []), ...(traceback ? [block(traceback, "Traceback")] : [])];
  }

  #offer(place, { record, size }) {
    if (!size) return show(place, el("p", { class: "empty" }, "It has none."));
    if (!this.context.may("payload")) return show(place, el("p", { class: "empty" }, "Hidden: you may not see payloads here."));
    return show(place, button("Show it", "payload-show", async () => {
      this.#payload = { record, place };
      try {
        place.replaceChildren(payloadTree(await get(`api/records/${record}/payload`, {})));
      } catch (error) {
        this.#payload = null;
        this.context.failed(error);
      }
    }));
  }

  async #act(verb, record, subscription) {
    const { text, path, done, consequence } = VERBS[verb];
    const name = text.replace(" …", "");
    if (consequence && !(await confirm({ question: `${name} record ${record}?`, consequence, yes: name, danger: true }))) return;
    try {
      const { failed } = await post(path, { subscription, records: [record] });
      toast(failed.length ? failed[0].why : done, failed.length ? "bad" : "good");
    } catch (error) {
      this.context.failed(error);
    }
    await this.reload();
    this.context.changed();
  }
}

const head = (title) => [
  el("div", { class: "head" }, el("h2", { id: "record-title" }, title), button("Close", "record-close", () => dialog.close(), { autofocus: true, class: "close" })),
];

const fact = (name, value) => el("div", {}, el("dt", {}, said(name)), el("dd", {}, typeof value === "string" ? said(value) : value));

const time = (moment) => el("time", { datetime: moment, title: moment }, local(moment));

const moment = ({ at, subscription, text }) => el("li", {}, at ? time(at) : el("time", {}, "now"), " ", subscription ? said(subscription, { class: "kind" }) : "", subscription ? " " : "", said(text));

const block = (text, name) => el("pre", { tabindex: "0", role: "region", "aria-label": name }, said(text));
