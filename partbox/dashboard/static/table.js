// Tables, which are cards in a narrow window: there each value has the name of its column before it.

import { el } from "./text.js";

// A row of cells, each of one child or a list of them; one that is a cell already stays as it is.
export const row = (attributes, ...cells) =>
  el("tr", { role: "row", ...attributes }, ...cells.map((each) => (each instanceof HTMLTableCellElement ? each : el("td", {}, ...[each].flat()))));

// `heads`: [[name, class of the cells]], a name may be an element; rows with fewer cells than heads are left alone.
export function table(heads, rows, name = null) {
  const folded = rows.every(({ children }) => children.length < heads.length);
  const head = heads.map(([text, kind]) => el("th", { scope: "col", role: "columnheader", class: kind === "number" && kind }, text));
  for (const { children } of rows) {
    if (children.length === heads.length) [...children].forEach((cell, place) => label(cell, ...heads[place]));
  }
  // The roles are said because display: block, which cards have, takes them away.
  return el(
    "table",
    { class: "cards", role: "table", "aria-label": name },
    el("thead", { role: "rowgroup", class: folded && "unseen" }, el("tr", { role: "row" }, ...head)),
    el("tbody", { role: "rowgroup" }, ...rows),
  );
}

function label(cell, name, kind) {
  cell.setAttribute("role", cell.tagName === "TH" ? "rowheader" : "cell");
  if (kind) cell.className = kind;
  if (typeof name === "string") cell.dataset.label = name;
}
