"""Draws charts of bars from JSON, as SVG that fits light and dark pages; see scripts/charts.

A file is a chart: `title`, `unit`, `groups` (names), `series` (`name` and `values`, one for each group, null for none),
and `log` if the lengths are logarithms. Its other fields say where the numbers come from, and are not drawn.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
COLOURS = ("#3b6fb6", "#8fb1dd", "#b3642f", "#e0a983")
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#222}.t{font-weight:600;font-size:15px}.v{font-size:12px}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}}"
)
WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 760, 210, 90, 16, 14, 66


def draw(chart: dict[str, Any]) -> str:
    """Return the chart as SVG: a group of bars for each name, a bar for each series, and its value behind it."""
    values = [value for series in chart["series"] for value in series["values"] if value is not None]
    least, most = min(values), max(values)
    unit = chart["unit"] + ", lengths by logarithm" * chart.get("log", False)
    lines, y = [f'<text class="t" x="8" y="22">{escape(chart["title"])} ({escape(unit)})</text>'], TOP
    x = 8.0
    for colour, series in zip(COLOURS, chart["series"], strict=False):
        lines.append(f'<rect x="{x:g}" y="34" width="12" height="12" rx="2" fill="{colour}"/>')
        lines.append(f'<text x="{x + 17:g}" y="45">{escape(series["name"])}</text>')
        x += 40 + 7.2 * len(series["name"])
    for place, name in enumerate(chart["groups"]):
        middle = y + BAR * len(chart["series"]) / 2 + 4
        lines.append(f'<text x="{LEFT - 10}" y="{middle:g}" text-anchor="end">{escape(name)}</text>')
        for colour, series in zip(COLOURS, chart["series"], strict=False):
            value = series["values"][place]
            if value is not None:
                length = scaled(value, least, most, log=chart.get("log", False)) * (WIDTH - LEFT - RIGHT)
                lines.append(
                    f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR - 2}" rx="2" fill="{colour}"/>'
                )
                lines.append(f'<text class="v" x="{LEFT + length + 6:.1f}" y="{y + 12}">{value:,.12g}</text>')
            y += BAR
        y += GAP
    body = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img" aria-label='
        f'"{escape(chart["title"])}">\n<style>{STYLE}</style>\n{body}\n</svg>\n'
    )


def scaled(value: float, least: float, most: float, *, log: bool) -> float:
    """Return the length of a bar between 0 and 1. The least value of a logarithmic chart still has a visible bar."""
    if not log:
        return max(0.0, value) / most
    return (math.log(value / least) + 0.5) / (math.log(most / least) + 0.5)


def main() -> None:
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    for path in sorted((given or ROOT / "docs" / "results").glob("*.json")):
        chart = json.loads(path.read_text(encoding="utf-8"))
        if "series" in chart:
            to = path.with_suffix(".svg") if given else ROOT / "docs" / "images" / f"results-{path.stem}.svg"
            to.write_text(draw(chart), encoding="utf-8")


if __name__ == "__main__":
    main()
