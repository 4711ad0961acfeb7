"""Verdicts, exit codes, tables and JSON, on values that are made up."""

import json
import math
from io import StringIO
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from partbox.errors import SettingsError
from partbox_lab.bench.budget import Budget, Direction, LineResult, Measured, Standing, Unmeasured, judged
from partbox_lab.bench.machine import BenchServer, Machine
from partbox_lab.bench.plot import LEAST, MOST, draw, drawable, headroom
from partbox_lab.bench.progress import BenchProgress
from partbox_lab.bench.report import BenchReport, shown

LATENCY = Budget("latency", "latency, median", Direction.AT_MOST, 1.5, "ms")
RATIO = Budget("ratio", "drain vs something", Direction.AT_LEAST, 3)
BUDGETS = st.builds(
    Budget,
    name=st.just("line"),
    what=st.just("what"),
    direction=st.sampled_from(Direction),
    bound=st.floats(min_value=0, max_value=1e6),
    unit=st.sampled_from(["", "ms", "%"]),
)
VALUES = st.floats(min_value=-1e6, max_value=1e9)
MACHINE = Machine(
    cpu="A processor",
    processors=4,
    usable=2,
    memory=8 << 30,
    load=0.1,
    system="Linux 6.1",
    python="3.11.7",
    partbox="0.1.0",
    psycopg="3.3",
)
SERVER = BenchServer(
    postgresql="18.4",
    embedded=False,
    local=True,
    settings={"fsync": "on", "synchronous_standby_names": ""},
)


def a_report(*results: LineResult, stolen: float | None = 0.001, **changed: object) -> BenchReport:
    given = {
        "machine": MACHINE,
        "server": SERVER,
        "quick": False,
        "seconds": 61.2,
        "stolen": stolen,
        "interrupted": False,
    } | changed
    return BenchReport(results=list(results), **given)


def printed(*shown: object, **options: object) -> str:
    out = StringIO()
    Console(file=out, width=200, highlight=False, **options).print(*shown, sep="\n")
    return out.getvalue()


MET = judged(LATENCY, Measured("latency", 1.23456, "300 samples", {"samples": 300.0}))
MISSED = judged(RATIO, Measured("ratio", 2.5, "drain 5/s, other 2/s"))
SKIPPED = judged(RATIO, Unmeasured("ratio", "there is one processor"))
FAILED = judged(RATIO, Unmeasured("ratio", "the worker processes ended", failed=True))


@given(BUDGETS, VALUES)
def test_a_value_meets_its_budget_on_the_right_side_of_the_bound_and_on_it(budget, value):
    met = budget.judge(value) is Standing.MET
    assert met == (value >= budget.bound if budget.direction is Direction.AT_LEAST else value <= budget.bound)
    assert budget.judge(budget.bound) is Standing.MET


@given(BUDGETS)
def test_a_value_of_nan_never_meets_a_budget(budget):
    assert budget.judge(math.nan) is Standing.MISSED


@given(BUDGETS, st.booleans())
def test_a_line_that_was_not_measured_never_meets_its_budget_and_says_why(budget, failed):
    found = judged(budget, Unmeasured(budget.name, "no time", failed))
    assert found.value is None
    assert found.standing is (Standing.FAILED if failed else Standing.SKIPPED)
    assert found.note == "no time"
    assert shown(found) == "-"


@given(BUDGETS, VALUES)
def test_a_bar_of_the_picture_reaches_the_budget_mark_if_the_budget_is_met(budget, value):
    result = judged(budget, Measured("line", value))
    assert LEAST <= headroom(result) <= MOST
    if value > 0 and budget.bound > 0:
        assert (headroom(result) >= 1) == (result.standing is Standing.MET)


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([MET], 0),
        ([MET, SKIPPED], 0),
        ([SKIPPED], 0),
        ([MET, MISSED], 1),
        ([MET, FAILED], 1),
        ([], 0),
    ],
)
def test_the_exit_code_says_whether_a_budget_was_missed(results, code):
    assert a_report(*results).code == code
    assert a_report(*results).ok == (code == 0)
    assert a_report(*results, interrupted=True).code == 130


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 ms"),
        (3.0, "3 ms"),
        (1.23456, "1.23 ms"),
        (0.04, "0.04 ms"),
        (123456.7, "123,457 ms"),
        (-0.5, "-0.50 ms"),
    ],
)
def test_a_value_is_shown_with_its_unit_and_as_many_digits_as_it_is_worth(value, text):
    assert shown(judged(LATENCY, Measured("latency", value))) == text


def test_the_printed_table_has_every_line_with_its_budget_and_its_verdict():
    report = a_report(MET, MISSED, SKIPPED)
    text = printed(*report.header(), report.table(), report.verdict())
    assert "A processor, 4 processors (2 usable), 8.0 GiB" in text
    assert "PostgreSQL 18.4, on this machine: fsync on, synchronous_standby_names none" in text
    assert "61 s, stolen time 0.1%" in text
    assert "1.23 ms  ≤ 1.5 ms  met" in text
    assert "2.50  ≥ 3       missed" in text
    assert "skipped  there is one processor" in text
    assert "1 met, 1 missed, 1 skipped" in text


def test_the_cpu_time_per_event_is_a_column_if_it_was_measured():
    cheap = judged(RATIO, Measured("ratio", 3.5, "drain 5/s, other 2/s", cpu=12.34))
    assert "CPU/event" not in printed(a_report(MET).table())
    text = printed(a_report(MET, cheap).table())
    assert "CPU/event" in text
    assert "3.50  ≥ 3       met        12.3 µs  drain 5/s" in text
    assert cheap.plain()["cpu_us"] == 12.34


def test_a_narrow_terminal_gets_no_column_that_has_no_room_there():
    text = printed(a_report(MET, MISSED).table(100))
    assert "latency, median" not in text
    assert "1.23 ms  ≤ 1.5 ms  met" in text


def test_neither_a_pipe_nor_a_user_who_wants_none_gets_colours(monkeypatch):
    report = a_report(MET, MISSED)
    assert "\x1b" not in printed(report.table(), report.verdict())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in printed(report.table(), report.verdict(), force_terminal=True)


def test_a_run_whose_time_was_stolen_says_that_its_values_are_not_to_be_trusted():
    assert "stolen time 7.0%, too much to trust the values: repeat the run" in a_report(MET, stolen=0.07).header()[-1]
    assert "trust" not in a_report(MET, stolen=0.001).header()[-1]
    assert "does not count stolen time" in a_report(MET, stolen=None).header()[-1]
    assert "(--quick), so the values are rough" in a_report(MET, quick=True).header()[-1]


def test_the_json_report_has_every_number():
    plain = json.loads(orjson.dumps(a_report(MET, SKIPPED).plain()))
    assert {"ok", "interrupted", "quick", "seconds", "stolen", "machine", "lines"} == plain.keys()
    assert plain["machine"]["settings"]["fsync"] == "on"
    met, skipped = plain["lines"]
    assert met == {
        "name": "latency",
        "what": "latency, median",
        "direction": "at most",
        "bound": 1.5,
        "unit": "ms",
        "value": 1.23456,
        "verdict": "met",
        "cpu_us": None,
        "note": "300 samples",
        "details": {"samples": 300.0},
    }
    assert (skipped["value"], skipped["verdict"]) == (None, "skipped")


def test_progress_output_names_each_measurement_and_its_result():
    out = StringIO()
    progress = BenchProgress(out, 2)
    progress.begin(["latency", "ratio"])
    progress.tell(MET)
    progress.tell(SKIPPED)
    lines = [line.split("s  ", 1)[1] for line in out.getvalue().splitlines()]
    assert lines == [
        "[1/2] measuring latency, ratio ...",
        "  latency  1.23 ms  (budget ≤ 1.5 ms)  met",
        "  ratio  there is one processor  (budget ≥ 3)  skipped",
    ]


def test_the_picture_has_a_bar_for_each_measured_line(tmp_path):
    path = tmp_path / "bench.svg"
    draw(a_report(MET, MISSED, SKIPPED), path)
    assert path.read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize("name", ["bench.txt", "bench", "no/such/folder.png"])
def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path, name):
    with pytest.raises(SettingsError, match="--plot cannot write"):
        drawable(tmp_path / name)


def test_without_matplotlib_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(SettingsError, match=r"pip install 'partbox\[plot\]'"):
        drawable(Path("bench.svg"))
