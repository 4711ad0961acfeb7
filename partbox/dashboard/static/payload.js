// A payload as a tree that opens level by level.

import { counted, el, said } from "./text.js";
import { button } from "./list.js";

const MOST = 200; // members that are drawn at once

// `answer` is what the server says of a payload: a tree, or a text or bytes, whole or their beginning.
export function payloadTree({ tree, text, bytes, whole }) {
  if (tree !== undefined) return node(tree, true);
  const rest = whole ? "" : el("p", { class: "note" }, "This is its beginning.");
  return el("div", {}, el("pre", { tabindex: "0", role: "region", "aria-label": bytes === undefined ? "Payload" : "Payload in hexadecimal" }, said(text ?? bytes)), rest);
}

function node(value, open = false, name = null) {
  const label = name === null ? "" : el("span", { class: "kind" }, said(name), ": ");
  if (value?.object) return branch(label, "{", counted(value.object.length, "member"), "}", value.object, open);
  if (value?.array) return branch(label, "[", counted(value.array.length, "element"), "]", value.array.map((each, place) => [String(place), each]), open);
  const leaf = value?.number ?? (typeof value === "string" ? JSON.stringify(value) : String(value));
  return el("div", { class: "leaf" }, label, el("span", { "data-type": value === null ? "null" : value.number === undefined ? typeof value : "number" }, said(leaf)));
}

// Its members are made when it is opened: a payload may have very many.
function branch(label, before, size, after, members, open) {
  const body = el("div", { class: "members" });
  const fold = el("details", {}, el("summary", {}, label, before, " ", el("small", {}, size), " ", after), body);
  let drawn = 0;
  const more = () => {
    const next = members.slice(drawn, drawn + MOST);
    drawn += next.length;
    body.append(...next.map(([name, value]) => node(value, false, name)));
    if (drawn >= members.length) return;
    const rest = button(`${counted(members.length - drawn, "more")}`.replace(/s$/, ""), null, () => {
      rest.remove();
      more();
    });
    body.append(rest);
  };
  fold.addEventListener("toggle", () => fold.open && !drawn && more());
  fold.open = open;
  return fold;
}
