"""The charts of the page on results are those of the JSON, and the JSON has numbers that were measured."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from charts import draw, scaled  # noqa: E402 (the scripts are no package)

FILES = sorted((ROOT / "docs" / "results").glob("*.json"))
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
HISTORY = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")


@pytest.fixture(params=FILES, ids=[path.stem for path in FILES])
def chart(request):
    return request.param.stem, json.loads(request.param.read_text(encoding="utf-8"))


def test_the_chart_is_drawn_from_its_numbers_and_the_page_shows_it(chart):
    name, data = chart
    drawn = (ROOT / "docs" / "images" / f"results-{name}.svg").read_text(encoding="utf-8")
    assert drawn == draw(data), "run scripts/charts"
    assert f"(images/results-{name}.svg)" in PAGE
    assert f"(results/{name}.json)" in PAGE


def test_the_numbers_stand_in_the_history_with_a_date_and_a_command_of_the_page(chart):
    _, data = chart
    written = {float(each.replace(",", "")) for each in re.findall(r"\d[\d,]*(?:\.\d+)?", HISTORY)}
    values = [value for series in data["series"] for value in series["values"] if value is not None]
    assert [value for value in values if value not in written] == []
    assert all(len(series["values"]) == len(data["groups"]) for series in data["series"])
    for date in re.findall(r"\d+ \w+ 2026", data["measured"]):
        assert date in HISTORY
    assert data["machine"]
    assert data["command"] in re.sub(r"\s+", " ", PAGE)


def test_the_length_of_a_bar_grows_with_its_value():
    for log in (False, True):
        lengths = [scaled(value, 1, 1_000, log=log) for value in (1, 10, 100, 1_000)]
        assert lengths == sorted(lengths)
        assert 0 < lengths[0] < lengths[-1] == 1
