// Small charts of the last two minutes, drawn as SVG.

import { el, length, number, rate } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const POINTS = 121;
const WIDTH = 240;
const HEIGHT = 56;

// So many, twice, five times, ten times as many …: a scale that rarely changes ends at the first that holds all values.
function powers(least) {
  return Array.from({ length: 45 }, (_, step) => least * [1, 2, 5][step % 3] * 10 ** Math.floor(step / 3));
}

const CHARTS = [
  {
    title: "Events per second",
    lines: [
      { name: "published", of: (point) => point[0], text: rate },
      { name: "delivered", of: (point) => point[1], text: rate },
    ],
    steps: powers(1),
    scale: rate,
  },
  {
    title: "Oldest waiting event",
    lines: [{ name: "waits", of: (point) => point[2], text: length }],
    steps: [1, 2, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 18000, 43200, 86400, ...powers(172800)],
    scale: length,
  },
  { title: "Waiting events", lines: [{ name: "waiting", of: (point) => point[3], text: number }], steps: powers(10), scale: number },
];

function svg(tag, attributes = {}) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

class Chart {
  constructor({ title, lines, steps, scale }) {
    Object.assign(this, { title, lines, steps, scale });
    this.values = lines.map(({ name }) => el("strong", { class: "value", "data-line": name }, "–"));
    this.top = el("span", { class: "scale" });
    this.drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    this.areas = lines.map(({ name }) => svg("path", { class: "area", "data-line": name }));
    this.paths = lines.map(({ name }) => svg("path", { class: "line", "data-line": name }));
    this.drawing.append(...this.areas, ...this.paths);
    const names = lines.map(({ name }, place) =>
      el("span", { class: "series", "data-line": name }, this.values[place], lines.length > 1 ? el("span", { class: "name" }, name) : ""),
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
    const highest = Math.max(0, ...values.flat().filter((value) => value !== null));
    const top = this.steps.find((step) => step >= highest);
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
