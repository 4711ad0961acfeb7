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

// Opens under a heading with these children; resolves with the value of `close(value)`, null after Escape.
function open(heading, build) {
  return new Promise((resolve) => {
    let result = null;
    const close = (value) => {
      result = value;
      dialog.close();
    };
    dialog.replaceChildren(el("h2", { id: "ask-title" }, heading), ...build(close).filter(Boolean));
    dialog.addEventListener("close", () => resolve(result), { once: true });
    dialog.showModal();
  });
}

const button = (text, click, attributes = {}) => el("button", { type: "button", onclick: click, ...attributes }, text);
const buttons = (...children) => el("div", { class: "buttons" }, ...children);

// Enter presses no more than this: the button that has the focus again when the dialog closes must not get it too.
const onEnter = (input, go) =>
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    go();
  });

// Asks for confirmation: null if refused, else true or, with a `field`, the text in it ("" if empty).
export function confirm({ question, consequence, yes, danger = false, field = null }) {
  return open(question, (close) => {
    const input = field && el("input", { autocomplete: "off", spellcheck: "false", maxlength: "500" });
    const go = () => close(input ? input.value : true);
    if (input) onEnter(input, go);
    return [
      el("p", {}, consequence),
      input && el("label", { class: "field" }, field, " ", input),
      buttons(
        button("Cancel", () => close(null), { autofocus: danger && !input }),
        button(yes, go, { class: danger ? "danger" : "primary", autofocus: !danger && !input }),
      ),
    ];
  });
}

// Asks for texts, `fields` of [label, what it is now] each: null if refused, else the texts, "" where none was typed.
export function form({ question, text, yes, fields }) {
  return open(question, (close) => {
    const inputs = fields.map(([, placeholder], place) => el("input", { placeholder, autocomplete: "off", spellcheck: "false", maxlength: "100", autofocus: !place }));
    const go = () => close(inputs.map(({ value }) => value.trim()));
    inputs.forEach((input) => onEnter(input, go));
    return [
      el("p", {}, text),
      ...inputs.map((input, place) => el("label", { class: "field" }, fields[place][0], " ", input)),
      buttons(button("Cancel", () => close(null)), button(yes, go, { class: "primary" })),
    ];
  });
}

// Asks for a token until `check(token)` accepts it; meanwhile the dialog shows the error.
export function askToken(why, check) {
  return open("Unlock actions", (close) => {
    const input = el("input", { type: "password", autocomplete: "off", autofocus: true, "aria-label": "Token", "aria-describedby": "ask-wrong" });
    const wrong = el("p", { id: "ask-wrong", class: "wrong", role: "alert" });
    const go = async () => {
      const given = input.value.trim();
      wrong.textContent = given ? "" : "Enter the token first.";
      if (given) wrong.textContent = (await check(given)) ?? "";
      if (!wrong.textContent) return close(given);
      input.setAttribute("aria-invalid", "true");
      input.select();
    };
    onEnter(input, go);
    return [
      el("p", {}, why),
      el("label", { class: "field" }, "Token ", input),
      wrong,
      buttons(button("Cancel", () => close(null)), button("Unlock", go, { class: "primary" })),
    ];
  });
}

// Explains something that cannot be changed here.
export function explain(heading, text) {
  return open(heading, (close) => [el("p", {}, text), buttons(button("Close", () => close(null), { autofocus: true }))]);
}

// Runs `work(progress, signal)` with a bar, and returns its result; Stop ends it after the current chunk.
export async function withProgress(heading, work) {
  const stop = new AbortController();
  const bar = el("progress", { "aria-label": heading });
  const text = el("p", { role: "status" }, "…");
  const end = (close) => button("Stop", () => close(null), { autofocus: true });
  open(heading, (close) => [bar, text, buttons(end(close))]).then(() => stop.abort());
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
