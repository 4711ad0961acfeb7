// Tables, which are cards in a narrow window: there each value has the name of its column before it.

import { el } from "./text.js";

// `heads`: [[name, class]], a name may be an element; `rows`: <tr>, those with fewer cells than heads are left alone.
export function table(heads, rows, name = null) {
  const folded = rows.every((row) => row.children.length < heads.length);
  const head = heads.map(([text, kind]) => el("th", { scope: "col", role: "columnheader", class: kind ?? null }, text));
  for (const row of rows) {
    row.setAttribute("role", "row");
    if (row.children.length === heads.length) [...row.children].forEach((cell, place) => label(cell, heads[place][0]));
  }
  // The roles are said because display: block, which cards have, takes them away.
  return el(
    "table",
    { class: "cards", role: "table", "aria-label": name },
    el("thead", { role: "rowgroup", class: folded ? "unseen" : null }, el("tr", { role: "row" }, ...head)),
    el("tbody", { role: "rowgroup" }, ...rows),
  );
}

function label(cell, name) {
  cell.setAttribute("role", cell.tagName === "TH" ? "rowheader" : "cell");
  if (typeof name === "string") cell.dataset.label = name;
}
