// The search: what is found by the box in the head, or by how it ended, as the address says.

import { ago, byId, clock, el, local, said, show } from "./text.js";
import { go, onMove, place } from "./address.js";
import { get } from "./link.js";
import { aggregate, button, recordLink } from "./list.js";
import { row, table } from "./table.js";

const NAMES = ["find", "ended", "since", "until", "before"];
const FIELDS = ["ended", "since", "until"];

export class Search {
  #asked = ""; // what the last answer, or the one under way, is about

  constructor() {
    byId("search").addEventListener("submit", (event) => {
      event.preventDefault();
      go({ find: byId("find").value.trim(), before: null });
    });
    for (const name of FIELDS) byId(name).addEventListener("change", ({ target }) => go({ [name]: target.value.trim(), before: null }));
    byId("search-close").addEventListener("click", () => go(Object.fromEntries(NAMES.map((name) => [name, null]))));
    byId("search-ended").addEventListener("click", () => go({ ended: "failed", since: "1h", find: null, before: null }));
    onMove(() => this.#moved());
    this.#moved();
  }

  #moved() {
    const query = Object.fromEntries(Object.entries(place()).filter(([name]) => NAMES.includes(name)));
    const asked = new URLSearchParams(query).toString();
    byId("find").value = query.find ?? "";
    for (const name of FIELDS) byId(name).value = query[name] ?? "";
    byId("found-side").hidden = !asked;
    if (asked === this.#asked) return;
    this.#asked = asked;
    if (asked) this.#ask(query, asked);
  }

  async #ask(query, asked) {
    show(byId("found"), el("p", { class: "empty" }, "Looking …"));
    byId("found-note").textContent = "";
    byId("found-side").scrollIntoView({ block: "nearest" });
    try {
      const answer = await get("api/find", query);
      if (asked === this.#asked) this.#draw(answer);
    } catch (error) {
      if (asked === this.#asked) show(byId("found"), el("p", { class: "wrong", role: "alert" }, said(error.message)));
    }
  }

  #draw({ at, meant, others, records, before, read_since }) {
    const also = others.length ? ` It is also a ${others.join(" and a ")} of other records.` : "";
    const cut = read_since ? ` Read back to ${local(read_since)} only.` : "";
    byId("found-note").textContent = `${meant ? `by ${meant}.` : ""}${also}${cut}`;
    const heads = [["Record", "number"], ["Published"], ["Event type"], ["Aggregate"], ["What became of it", "wide"]];
    const found = records.length ? table(heads, records.map((each) => line(each, at)), "Found records") : el("p", { class: "empty" }, "Nothing was found.");
    show(byId("found"), found, before ? button("Older", "older-found", () => go({ before: String(before) })) : "");
  }
}

function line(each, at) {
  const states = each.states.map(({ subscription, state }) => el("span", { class: "standing" }, said(subscription), " ", el("span", { class: "parked-state", "data-parked": state }, state)));
  return row(
    { "data-record": each.record },
    recordLink(each.record, "found"),
    [ago(each.published_at, at), el("small", {}, ` ${clock(each.published_at)}`)],
    said(each.event_type),
    aggregate(each),
    el("div", {}, ...states),
  );
}
