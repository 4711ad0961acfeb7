// The 256 partitions: a map coloured by owner and shaded by lag, and the same as a table.

import { byId, el, length, number, said, show } from "./text.js";
import { row, table } from "./table.js";

const SIDE = 16;
const SHADES = [1, 10, 60, 300]; // seconds of lag
const PULSE = 4000; // milliseconds that a partition is marked after it has moved

const shade = (lag) => SHADES.filter((least) => (lag ?? 0) >= least).length;

export class PartitionMap {
  #data = null;
  #focused = 0;
  #hovered = null;
  #table = false;

  constructor() {
    this.map = byId("map");
    this.details = byId("details");
    this.cells = Array.from({ length: SIDE * SIDE }, (_, partition) => this.#cell(partition));
    const rows = Array.from({ length: SIDE }, (_, line) =>
      el(
        "div",
        { role: "row" },
        el("span", { role: "rowheader", class: "from" }, String(line * SIDE)),
        ...this.cells.slice(line * SIDE, (line + 1) * SIDE),
      ),
    );
    this.map.replaceChildren(...rows);
    this.map.addEventListener("keydown", (event) => this.#key(event));
    this.map.addEventListener("pointerleave", () => this.#hover(null));
    this.map.addEventListener("focusout", () => this.#tell());
    for (const [id, table] of [["as-map", false], ["as-table", true]]) {
      byId(id).addEventListener("click", () => this.#choose(table));
    }
    this.#tell();
  }

  draw(data, now) {
    const before = this.#data?.name === data.name ? this.#data : null;
    this.#data = { ...data, now };
    this.cells.forEach((cell, partition) => this.#paint(cell, partition));
    if (before) this.#pulse(before);
    const owned = data.owners.length - data.unowned;
    byId("partitions-note").textContent = data.unowned ? `${data.unowned} without an owner` : `all ${owned} owned`;
    this.#tell();
    if (this.#table) this.#tabulate();
  }

  // Let the partitions of one process stand out; null: all alike.
  highlight(place) {
    this.cells.forEach((cell, partition) => {
      cell.toggleAttribute("data-aside", place !== null && this.#data.owners[partition] !== place);
    });
  }

  #cell(partition) {
    const cell = el("div", { role: "gridcell", class: "cell", tabindex: partition ? "-1" : "0", "data-partition": partition });
    cell.addEventListener("pointerenter", () => this.#hover(partition));
    cell.addEventListener("focus", () => this.#focus(partition, false));
    return cell;
  }

  // A partition as it is drawn: its owner, the next one if it is on its way there, both in words, and its numbers.
  #facts(partition) {
    const { owners, assignees, epochs, pendings, lags, claimed, suspects, instances } = this.#data;
    const owner = instances[owners[partition]];
    const next = assignees[partition] === owners[partition] ? undefined : instances[assignees[partition]];
    const nobody = owners[partition] === -2 ? "its owner is gone" : "no owner";
    return {
      owner,
      next,
      whose: owner ? `process ${owner.letter}, pid ${owner.pid} on ${owner.node}` : nobody,
      moving: next ? `, to go to process ${next.letter}` : "",
      epoch: String(epochs[partition]),
      pending: pendings[partition],
      lag: lags[partition],
      claimed: claimed[partition],
      suspect: suspects.includes(partition),
    };
  }

  #paint(cell, partition) {
    const { owner, next, whose, moving, pending, lag } = this.#facts(partition);
    const unread = pending ? `, ${number(pending)} unread` : "";
    const waits = lag === null ? "" : `${unread}, the oldest waits ${length(lag)}`;
    set(cell, "data-slot", owner?.slot);
    set(cell, "data-level", owner && shade(lag));
    set(cell, "data-next", next?.slot);
    set(cell, "aria-label", `Partition ${partition}: ${whose}${moving}${waits}`);
    const letter = owner?.letter ?? "·";
    if (cell.textContent !== letter) cell.textContent = letter;
  }

  #pulse(before) {
    this.cells.forEach((cell, partition) => {
      if (before.epochs[partition] === this.#data.epochs[partition]) return;
      cell.setAttribute("data-moved", "");
      clearTimeout(cell.pulse);
      cell.pulse = setTimeout(() => cell.removeAttribute("data-moved"), PULSE);
    });
  }

  #hover(partition) {
    this.#hovered = partition;
    this.#tell();
  }

  #focus(partition, move = true) {
    this.cells[this.#focused].tabIndex = -1;
    this.#focused = partition;
    this.cells[partition].tabIndex = 0;
    if (move) this.cells[partition].focus();
    this.#tell();
  }

  #key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -SIDE, ArrowDown: SIDE };
    const row = this.#focused - (this.#focused % SIDE);
    const places = { Home: event.ctrlKey ? 0 : row, End: event.ctrlKey ? SIDE * SIDE - 1 : row + SIDE - 1 };
    const next = event.key in steps ? this.#focused + steps[event.key] : places[event.key];
    if (next === undefined) return;
    event.preventDefault();
    if (next >= 0 && next < SIDE * SIDE) this.#focus(next);
  }

  // The facts about the partition under the pointer, or with the focus.
  #tell() {
    const focused = this.map.contains(document.activeElement) ? this.#focused : null;
    const partition = this.#hovered ?? focused;
    if (partition === null || !this.#data) {
      return show(this.details, el("div", {}, el("dt", { class: "unseen" }, "Partition"), el("dd", {}, "Point at a partition, tap it, or walk the map with the arrow keys.")));
    }
    const { whose, moving, epoch, pending, lag, claimed, suspect } = this.#facts(partition);
    const facts = [
      ["Partition", String(partition)],
      ["Owner", said(whose + moving)],
      ["Epoch", epoch],
      ["Claimed", claimed === null ? "never" : `${length(claimed)} ago`],
      ["Unread", number(pending)],
      ["Oldest event waits", length(lag)],
    ];
    if (suspect) facts.push(["Suspect", "its last owner died: what may have killed it runs one by one"]);
    return show(this.details, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  }

  #choose(table) {
    this.#table = table;
    byId("as-map").setAttribute("aria-pressed", String(!table));
    byId("as-table").setAttribute("aria-pressed", String(table));
    byId("map-side").hidden = table;
    byId("table-side").hidden = !table;
    if (table && this.#data) this.#tabulate();
  }

  #tabulate() {
    const rows = this.#data.owners.map((_, partition) => {
      const { owner, next, whose, epoch, pending, lag } = this.#facts(partition);
      const name = [owner ? badge(owner) : "–", " ", said(owner?.node ?? whose)];
      const head = el("th", { scope: "row" }, String(partition));
      return row({}, head, name, owner ? String(owner.pid) : "–", next ? badge(next) : "", epoch, number(pending), length(lag));
    });
    const heads = [["Partition", "number"], ["Owner"], ["pid", "number"], ["Goes to"], ["Epoch", "number"], ["Unread", "number"], ["Oldest waits", "number"]];
    show(byId("table-side"), table(heads, rows));
  }
}

// A process's letter on its colour.
export const badge = (instance) => el("span", { class: "badge", "data-slot": instance.slot }, instance.letter);

function set(element, name, value) {
  if (value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}
