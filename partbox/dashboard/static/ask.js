// Questions, answers and progress, over the page.

import { byId, el, number } from "./text.js";

const dialog = byId("ask");

export function toast(text, level = "good") {
  const place = byId("toast");
  place.textContent = text;
  place.dataset.level = level;
  clearTimeout(place.fade);
  place.fade = setTimeout(() => (place.textContent = ""), level === "bad" ? 12000 : 6000);
}

// Opens with these children; resolves with what `close(value)` got, null when it is left by Escape.
function open(build) {
  return new Promise((resolve) => {
    let result = null;
    const close = (value) => {
      result = value;
      dialog.close();
    };
    dialog.replaceChildren(...build(close));
    dialog.addEventListener("close", () => resolve(result), { once: true });
    dialog.showModal();
  });
}

const title = (text) => el("h2", { id: "ask-title" }, text);
const button = (text, click, attributes = {}) => el("button", { type: "button", onclick: click, ...attributes }, text);
const buttons = (...children) => el("div", { class: "buttons" }, ...children);

// Whether it is wanted; with a `field`, what was written there ("" if nothing), else true. Null if it is not wanted.
export function confirm({ question, consequence, yes, danger = false, field = null }) {
  return open((close) => {
    const input = field && el("input", { autocomplete: "off", spellcheck: "false", maxlength: "500" });
    const go = () => close(input ? input.value : true);
    input?.addEventListener("keydown", (event) => event.key === "Enter" && go());
    return [
      title(question),
      el("p", {}, consequence),
      input && el("label", { class: "field" }, field, " ", input),
      buttons(
        button("Cancel", () => close(null), { autofocus: danger && !input }),
        button(yes, go, { class: danger ? "danger" : "primary", autofocus: !danger && !input }),
      ),
    ].filter(Boolean);
  });
}

export function askToken(why) {
  return open((close) => {
    const input = el("input", { type: "password", autocomplete: "off", autofocus: true, "aria-label": "Token" });
    const go = () => close(input.value.trim());
    input.addEventListener("keydown", (event) => event.key === "Enter" && go());
    return [
      title("Unlock actions"),
      el("p", {}, why),
      el("label", { class: "field" }, "Token ", input),
      buttons(button("Cancel", () => close(null)), button("Use it", go, { class: "primary" })),
    ];
  });
}

// Shows `name: value` lines; values may be elements.
export function details(heading, facts, actions = []) {
  return open((close) => [
    title(heading),
    el("dl", { class: "whole" }, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    buttons(
      ...actions.map(({ text, danger, value }) => button(text, () => close(value), { class: danger ? "danger" : "primary" })),
      button("Close", () => close(null), { autofocus: true }),
    ),
  ]);
}

// Runs `work(progress, signal)` with a bar; Stop ends it after the current chunk. What it returns.
export async function withProgress(heading, work) {
  const stop = new AbortController();
  const bar = el("progress", { "aria-label": heading });
  const text = el("p", { role: "status" }, "…");
  const closed = open((close) => [title(heading), bar, text, buttons(button("Stop", () => close(null), { autofocus: true }))]);
  closed.then(() => stop.abort());
  try {
    return await work((done, total) => {
      bar.max = total;
      bar.value = done;
      text.textContent = `${number(done)} of ${number(total)}`;
    }, stop.signal);
  } finally {
    dialog.close();
  }
}
