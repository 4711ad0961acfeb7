// Small charts of the last two minutes, drawn as SVG.

import { el, length, number, rate } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const POINTS = 121;
const WIDTH = 240;
const HEIGHT = 56;

const CHARTS = [
  {
    title: "Events per second",
    lines: [
      { name: "published", of: (point) => point[0], text: rate },
      { name: "delivered", of: (point) => point[1], text: rate },
    ],
    least: 1,
    scale: rate,
  },
  {
    title: "Oldest waiting event",
    lines: [{ name: "waits", of: (point) => point[2], text: length }],
    least: 1,
    scale: length,
  },
  { title: "Waiting events", lines: [{ name: "waiting", of: (point) => point[3], text: number }], least: 10, scale: number },
];

function svg(tag, attributes = {}) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// The smallest of 1, 2, 5, 10, 20 … that is not below the value: a scale that rarely changes.
function ceiling(value, least) {
  const size = 10 ** Math.floor(Math.log10(Math.max(value, least)));
  return [1, 2, 5, 10].map((step) => step * size).find((step) => step >= Math.max(value, least));
}

class Chart {
  constructor({ title, lines, least, scale }) {
    Object.assign(this, { title, lines, least, scale });
    this.values = lines.map(({ name }) => el("strong", { class: "value", "data-line": name }, "–"));
    this.top = el("span", { class: "scale" });
    this.drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    this.areas = lines.map(({ name }) => svg("path", { class: "area", "data-line": name }));
    this.paths = lines.map(({ name }) => svg("path", { class: "line", "data-line": name }));
    this.drawing.append(...this.areas, ...this.paths);
    const names = lines.map(({ name }, place) =>
      el("span", { class: "series", "data-line": name }, this.values[place], el("span", { class: "name" }, name)),
    );
    this.element = el(
      "figure",
      { class: "card chart" },
      el("figcaption", {}, el("h2", {}, title), el("p", {}, ...names)),
      el("div", { class: "plot" }, this.top, this.drawing),
    );
  }

  draw(points) {
    const values = this.lines.map(({ of }) => points.map(of));
    const top = ceiling(Math.max(0, ...values.flat().filter((value) => value !== null)), this.least);
    const place = (value, index) => [
      (WIDTH * (POINTS - points.length + index)) / (POINTS - 1),
      HEIGHT - 1 - ((HEIGHT - 4) * value) / top,
    ];
    values.forEach((line, which) => {
      const drawn = line.map((value, index) => (value === null ? null : place(value, index))).filter(Boolean);
      const path = drawn.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
      this.paths[which].setAttribute("d", path);
      const [first, last] = [drawn[0], drawn[drawn.length - 1]];
      this.areas[which].setAttribute("d", drawn.length ? `${path}L${last[0]} ${HEIGHT}L${first[0]} ${HEIGHT}Z` : "");
      this.values[which].textContent = this.lines[which].text(line.length ? line[line.length - 1] : null);
    });
    this.top.textContent = this.scale(top);
    const now = this.lines.map(({ name }, which) => `${name} ${this.values[which].textContent}`).join(", ");
    this.drawing.setAttribute("aria-label", `${this.title}, last two minutes: now ${now}; the scale ends at ${this.scale(top)}`);
  }
}

export class Charts {
  #points = [];

  constructor(place) {
    this.charts = CHARTS.map((each) => new Chart(each));
    place.replaceChildren(...this.charts.map((chart) => chart.element));
  }

  // `history` is there in the first frame of a stream, and holds its point already.
  draw(point, history) {
    this.#points = history ?? [...this.#points.slice(1 - POINTS), point];
    for (const chart of this.charts) chart.draw(this.#points);
  }
}
