// What operators did, on this page or elsewhere.

import { ago, byId, el, number, said, show } from "./text.js";
import { get } from "./link.js";
import { row, table } from "./table.js";

const OFTEN = 15000; // milliseconds between two looks

export class ActionList {
  #asked = 0;

  async refresh(at, failed) {
    if (Date.now() - this.#asked < OFTEN) return;
    this.#asked = Date.now();
    try {
      this.#draw(await get("api/actions", {}), at);
    } catch (error) {
      failed(error);
    }
  }

  // It is asked for again at the next frame.
  forget() {
    this.#asked = 0;
  }

  #draw(found, at) {
    byId("actions-note").textContent = found.length ? `the last ${number(found.length)}` : "none";
    const heads = [["When"], ["Who"], ["What"], ["Subscription"], ["Why"], ["On what", "wide"], ["Changed", "number"]];
    const rows = found.map((each) => row({}, ago(each.at, at), said(each.who), said(each.action), said(each.subscription), said(each.reason), said(each.on), number(each.count)));
    show(byId("actions"), found.length ? table(heads, rows, "What operators did") : el("p", { class: "empty" }, "Nobody has replayed, discarded, skipped or paused anything. Whoever does stands here, from this page or a command."));
  }
}
