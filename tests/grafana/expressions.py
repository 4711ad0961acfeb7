"""The expressions of the committed dashboards and alert rules, as a Prometheus of the tests can run them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
GRAFANA = ROOT / "grafana"
RULES = GRAFANA / "prometheus" / "rules" / "alerts.yml"
OBJECTIVES = RULES.with_name("slo.yml")
BOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))

LABEL_VALUES = re.compile(r"label_values\((.*), \w+\)")


class Expression(NamedTuple):
    """`place`: where it is written, in words."""

    place: str
    text: str


def board(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def panels(path: Path) -> list[Any]:
    """The panels of a dashboard that show something."""
    return [panel for panel in board(path)["panels"] if panel["type"] != "row"]


def of_boards() -> list[Expression]:
    """Those of all panels, marks and variables, as Grafana would send them, with everything chosen."""
    return [Expression(place, chosen(text)) for path in BOARDS for place, text in _written(path)]


def rules(path: Path) -> list[Any]:
    return [rule for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def alerts(path: Path = RULES) -> list[Any]:
    return [rule for rule in rules(path) if "alert" in rule]


def chosen(text: str) -> str:
    """With Grafana's variables filled in. The tests scrape once a second, where the machine has the time for it."""
    given = {
        "$__rate_interval": "30s",
        "$__interval": "6s",
        "$job": "partbox",
        "$database": ".*",
        "$subscription": ".*",
        "$handler": ".*",
    }
    for name, value in given.items():
        text = text.replace(name, value)
    assert "$" not in re.sub(r'"0+\$1"', "", text), f"a variable is left in {text}"
    return text


def _written(path: Path) -> Iterator[tuple[str, str]]:
    found = board(path)
    for panel in panels(path):
        for target in panel["targets"]:
            yield f"{found['title']}, {panel['title']}, {target['refId']}", target["expr"]
    for mark in found["annotations"]["list"]:
        yield f"{found['title']}, mark {mark['name']}", mark["expr"]
    for variable in found["templating"]["list"]:
        if variable["type"] == "query":
            asked = LABEL_VALUES.fullmatch(variable["query"]["query"])
            assert asked, variable
            yield f"{found['title']}, variable {variable['name']}", asked.group(1)
