"""Every line, measured once at small sizes. The values mean nothing here; that there is one does."""

import json
import math
from io import StringIO
from pathlib import Path

import psycopg
import pytest

from partbox_lab.bench import GROWTH, LINES, QUICK, BenchPlan, perform

TINY = str(Path(__file__).with_name("tiny.py"))
PGQ = Path(__file__).with_name("pgq.sql").read_text(encoding="utf-8")
PATIENCE = 120.0
EXACT = {"rebalance-moves": 0, "restart-duplicates": 0, "restart-reordered": 0}
"""Lines that do not depend on the speed of the machine."""


@pytest.mark.thorough
@pytest.mark.parametrize("group", [*LINES.groups, *GROWTH.groups], ids=lambda group: group.budgets[0].name)
def test_each_measurement_yields_a_value_and_leaves_nothing_behind(started, schemas, empty_dsn, group):
    names = [each.name for each in group.budgets]
    if "drain-pgq" in names:
        with psycopg.connect(empty_dsn) as conn:
            conn.execute(PGQ)
    process = started("python", TINY, empty_dsn, *names)
    out, said = process.communicate(timeout=PATIENCE)
    assert out, said
    lines = {each["name"]: each for each in json.loads(out)["lines"]}
    assert [*lines] == names
    for name, line in lines.items():
        assert line["verdict"] in ("met", "missed"), line
        assert math.isfinite(line["value"]), line
        assert line["value"] == EXACT.get(name, line["value"]), line
    assert schemas() == []
    if "drain-pgq" in names:
        with psycopg.connect(empty_dsn) as conn:
            assert conn.execute("select count(*) from pgq.queue").fetchone() == (0,)


def test_pgq_is_skipped_where_it_is_not_installed(empty_dsn):
    report = perform(BenchPlan(empty_dsn, frozenset({"drain-pgq"}), QUICK), StringIO())
    (result,) = report.results
    assert (result.standing, result.note) == ("skipped", "PgQ is not installed on this server")


def test_no_two_measurements_have_the_same_name():
    names = [each.name for each in (*LINES.budgets, *GROWTH.budgets)]
    assert len(names) == len(set(names))
