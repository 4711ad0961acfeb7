// The limits of handlers: what is in force, what is paused, what waits for its turn, and changing it while workers run.

import { ago, byId, counted, el, length, number, said, show } from "./text.js";
import { confirm, form, toast } from "./ask.js";
import { post } from "./link.js";
import { button } from "./list.js";
import { row, table } from "./table.js";

const HEADS = [["Handler", "handler"], ["Rate", "number"], ["At once", "number"], ["For each"], ["Waiting", "number"], ["The first for", "number"], ["These the longest", "wide"], ["Set"]];

export class Limits {
  #shown = { name: null, limits: [] }; // listeners look into it when they are called: elements that look the same stay

  constructor(context) {
    this.context = context;
  }

  draw({ name, limits }, at) {
    this.#shown = { name, limits };
    const waiting = limits.reduce((sum, each) => sum + each.waiting, 0);
    byId("limits-side").hidden = !limits.length;
    byId("limits-note").textContent = waiting ? `${counted(waiting, "event")} waiting for their turn in the memory of workers` : "nothing waits";
    const rows = limits.map((each) => this.#row(each, at));
    show(byId("limits"), table([...HEADS, [el("span", { class: "unseen" }, "Actions"), "actions"]], rows, "Limits of handlers"));
  }

  #row(limit, at) {
    const { name, label, rate, at_once, by, waiting, waited, values, change, open_for } = limit;
    const longest = values.flatMap((found, place) => [place ? ", " : "", said(found.value), ` (${number(found.waiting)})`]);
    const since = open_for === null ? "as declared" : `open for ${length(open_for)}`;
    const set = change ? [ago(change.changed_at, at), " by ", said(change.changed_by)] : since;
    const cells = [said(label), rate, at_once, by === null ? "" : said(by), number(waiting), waited === null ? "" : length(waited)];
    return row({ "data-limit": name }, ...cells, longest, set, this.context.may("limit") ? this.#buttons(limit) : "");
  }

  #buttons({ name, kind, change }) {
    const reset = change ? [button("Reset …", `reset-${name}`, () => this.#reset(...this.#now(name)))] : [];
    if (kind !== "handler") return reset; // what is paused can only go on, and a circuit closes by itself
    return [button("Change …", `limit-${name}`, () => this.#change(...this.#now(name))), ...reset];
  }

  #now(limit) {
    return [this.#shown.name, this.#shown.limits.find(({ name }) => name === limit)];
  }

  async #change(subscription, { name, label, rate, at_once }) {
    const answer = await form({
      question: `Limit handler ${label}`,
      text: "In all processes together, until it is reset; running workers take it within a heartbeat. “none” lifts a bound, 0 calls pause it, an empty field leaves it as it is.",
      yes: "Change",
      fields: [["Calls that may start, such as 100/s, 90/m or 5/h", rate === "paused" ? "0" : rate], ["Calls that may run at once", at_once]],
    });
    if (!answer) return;
    const [starts, running] = answer.map((text) => text || null);
    await this.#post("set", { subscription, handler: name, rate: starts, at_once: running }, "limited: workers take it within a heartbeat");
  }

  async #reset(subscription, { kind, handler, value, label }) {
    const whole = kind === "handler";
    const consequence = whole ? "What was set is forgotten: it is limited as its code declares, if it does." : "What waits goes on.";
    const question = whole ? `Reset the limit of handler ${label}?` : `Let ${label} go on?`;
    if (!(await confirm({ question, consequence, yes: "Reset" }))) return;
    const address = { handler: { handler }, value: { handler, value }, type: { event_type: value }, tenant: { tenant: value } }[kind];
    await this.#post("reset", { subscription, ...address }, whole ? "reset: it is limited as it declares" : "reset: it goes on");
  }

  async #post(verb, body, words) {
    try {
      const { done } = await post(`api/limit/${verb}`, body);
      toast(done ? words : "nothing had to be done: it is so already");
    } catch (error) {
      this.context.failed(error);
    }
    this.context.changed();
  }
}
