"""Writes the dashboards and the alert rules: `python grafana/source [--thresholds FILE] [--into FOLDER]`."""

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

import yaml
from alerts import rules
from calls import calls
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from overview import overview
from partitions import partitions
from slo import objectives

HERE = Path(__file__).resolve().parents[1]
HEAD = "# Made by scripts/grafana from thresholds.toml and source/{}.py: change those.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--thresholds", type=Path, default=HERE / "thresholds.toml")
    parser.add_argument("--into", type=Path, default=HERE)
    given = parser.parse_args()
    limits = tomllib.loads(given.thresholds.read_text(encoding="utf-8"))
    for name, text in _files(limits).items():
        path = given.into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _files(limits: dict[str, Any]) -> dict[str, str]:
    made = {"overview": overview(limits), "partitions": partitions(), "handlers": calls()}
    boards = {f"dashboards/{name}.json": _json(board) for name, board in made.items()}
    made_rules = {"alerts": rules(limits), "slo": objectives(limits)}
    return boards | {
        f"prometheus/rules/{name}.yml": HEAD.format(name) + _yaml(data) for name, data in made_rules.items()
    }


def _json(board: Dashboard) -> str:
    """With ids of panels, which links and the address of a single panel need."""
    built = board.build()
    for number, panel in enumerate(built.panels or [], 1):
        panel.id_val = number
    return json.dumps(built, cls=JSONEncoder, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def _yaml(data: dict[str, Any]) -> str:
    return yaml.safe_dump(data, sort_keys=False, width=10_000, allow_unicode=True)


main()
