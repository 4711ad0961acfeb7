// How far each subscription was behind over the last day: a bar for five minutes.

import { byId, clock, counted, el, length, said, show } from "./text.js";
import { get } from "./link.js";
import { go } from "./address.js";
import { unlessPressed } from "./press.js";

const STEP = 300; // seconds of a bar
const OFTEN = 30000; // milliseconds between two looks
const HEIGHT = 28;
const DAY = Math.log1p(86400);

// From a second to a day, so that all can be compared.
const height = (lag) => (HEIGHT * Math.min(1, Math.log1p(lag) / DAY)).toFixed(1);

const level = (lag) => (lag >= 300 ? "bad" : lag >= 60 ? "warn" : "good");

export class Lags {
  #asked = 0;

  async refresh(at, failed) {
    if (Date.now() - this.#asked < OFTEN) return;
    this.#asked = Date.now();
    try {
      const found = await get("api/lags", {});
      unlessPressed("lags", () => this.#draw(found, at));
    } catch (error) {
      failed(error);
    }
  }

  #draw(found, at) {
    byId("lags-note").textContent = found.length > 1 ? `${counted(found.length, "subscription")}, those that lag most first` : "";
    show(byId("lags"), ...found.map((each) => row(each, at)));
  }
}

function row(each, at) {
  const { name, label, now } = each;
  const choose = el("button", { type: "button", class: "link", "data-key": `lag-of-${name}`, onclick: () => go({ subscription: name }) }, said(label));
  return el("li", {}, choose, drawing(each, at), el("span", { class: "behind", "data-level": level(now) }, now ? length(now) : "0 s"));
}

function drawing({ bars, label }, at) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const highest = Math.max(...bars);
  const back = bars.length - 1 - bars.lastIndexOf(highest);
  const worst = highest ? `the longest was ${length(highest)}, at ${clock(new Date(at) - 1000 * STEP * back).slice(0, 5)}` : "nothing waited for long";
  const known = bars.filter((lag) => lag !== null).length;
  const story = `${label}, last ${known === bars.length ? "day" : length(known * STEP)}: ${worst}`;
  const attributes = { viewBox: `0 0 ${bars.length} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": story };
  for (const [name, value] of Object.entries(attributes)) svg.setAttribute(name, value);
  for (const wanted of ["good", "warn", "bad"]) {
    const path = document.createElementNS(svg.namespaceURI, "path");
    path.dataset.level = wanted;
    path.setAttribute("d", bars.map((lag, x) => (lag === null || level(lag) !== wanted ? "" : `M${x} ${HEIGHT}v-${Math.max(1, height(lag))}h1V${HEIGHT}z`)).join(""));
    svg.append(path);
  }
  return svg;
}
