"""`partbox bench`, run as people run it: what it refuses, how it ends, what it leaves."""

import json
import os
import signal
from io import StringIO

import psycopg
import pytest
from forked_commands import Command

from partbox.cli import main
from partbox.errors import PartboxError
from partbox_lab.bench import LINES, QUICK, BenchPlan, LineSet, perform
from partbox_lab.bench.budget import Budget, Direction, Measured
from partbox_lab.bench.group import LineGroup
from partbox_lab.bench.measurements import drain, latency

FIRST = Budget("first", "the first", Direction.AT_LEAST, 1)
SECOND = Budget("second", "the second", Direction.AT_LEAST, 1)
THIRD = Budget("third", "the third", Direction.AT_LEAST, 1)
NAMES = [each.name for each in LINES.budgets if each.name != "memory"]  # which is a word of the next one too
QUICK_LINE = ("--quick", "--only", "latency-1-p50", "--json")


@pytest.fixture
def told(capsys, monkeypatch):
    """Runs a command in this process; its exit code, output and errors."""
    for variable in [name for name in os.environ if name.startswith("PARTBOX_")]:
        monkeypatch.delenv(variable)

    def told(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit:
            main(["bench", *arguments])
        out, err = capsys.readouterr()
        return int(exit.value.code or 0), out, err

    return told


@pytest.fixture
def measured(empty_dsn):
    """The report of a run of two groups, the first with the lines `first` and `second`, the other with `third`."""

    def measured(measure, third=lambda *_: iter([Measured("third", 2.0)])):
        lines = LineSet((LineGroup((FIRST, SECOND), measure), LineGroup((THIRD,), third)))
        plan = BenchPlan(empty_dsn, lines.names, QUICK, lines=lines)
        return {each.budget.name: each for each in perform(plan, StringIO()).results}

    return measured


def read_until(process: Command, word: str) -> None:
    """Read what it says up to the line with that word."""
    said = []
    for line in process.stderr:
        said.append(line)
        if word in line:
            return
    raise AssertionError(f"it never said {word!r} but: {''.join(said)}")


@pytest.mark.parametrize("word", ["setting up", "measuring"])
def test_ctrl_c_ends_the_bench_with_130_and_leaves_nothing_behind(started, schemas, empty_dsn, word):
    process = started("partbox", "bench", "--dsn", empty_dsn, *QUICK_LINE)
    read_until(process, word)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to every process
    out, err = process.communicate()
    assert process.returncode == 130, err
    report = json.loads(out)
    assert report["interrupted"]
    assert [(each["verdict"], each["note"]) for each in report["lines"]] == [("skipped", "interrupted")]
    assert schemas() == []


def test_a_second_ctrl_c_does_not_wait_for_worker_processes(started, schemas, empty_dsn):
    process = started("partbox", "bench", "--dsn", empty_dsn, *QUICK_LINE)
    read_until(process, "measuring")
    os.killpg(process.pid, signal.SIGINT)
    os.killpg(process.pid, signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert schemas() == []


def test_without_a_dsn_the_database_is_an_embedded_one(started, tmp_path):
    picture = tmp_path / "bench.svg"
    tmp_path.chmod(0o755)
    process = started("partbox", "bench", "--quick", "--only", "publish-one", "--plot", str(picture))
    out, err = process.communicate()
    assert process.returncode in (0, 1), err
    assert "embedded: autovacuum on" in out
    assert "publish-one" in out
    assert "\x1b" not in out
    assert "[1/1] measuring publish-one" in err
    assert picture.read_text(encoding="utf-8").startswith("<?xml")


def test_the_bench_uses_the_dsn_of_the_environment_if_no_flag_names_one(started, schemas, empty_dsn):
    process = started("partbox", "bench", "--quick", "--only", "publish-one", "--json", PARTBOX_DSN=empty_dsn)
    out, err = process.communicate()
    assert not json.loads(out)["machine"]["embedded"], err
    assert schemas() == []


def test_a_schema_that_exists_is_refused_with_the_remedy_and_left_alone(told, schemas, empty_dsn):
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute("create schema partbox_bench")
    code, out, err = told("--dsn", empty_dsn, "--quick")
    assert (code, out) == (1, "")
    assert "schema 'partbox_bench' exists already" in err
    assert "drop schema partbox_bench cascade" in err
    assert schemas() == ["partbox_bench"]


def test_an_unknown_measurement_is_one_error_with_the_nearest_name(told):
    code, out, err = told("--only", "drain-curser")
    assert (code, out) == (2, "")
    assert err == "partbox: there is no line 'drain-curser': did you mean drain-cursor?\n"


def test_an_unreachable_server_is_a_one_line_error_of_the_bench(told):
    code, out, err = told("--dsn", "host=127.0.0.1 port=1 dbname=x password=geheim")
    assert (code, out) == (1, "")
    assert "partbox: cannot use the database" in err
    assert "geheim" not in err


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_database_is_contacted(told):
    code, out, err = told("--dsn", "host=127.0.0.1 port=1 dbname=x", "--plot", "bench.txt")
    assert (code, out) == (1, "")
    assert err == "partbox: --plot cannot write 'bench.txt': name a file such as bench.svg or bench.png\n"


def test_the_measurements_can_be_listed_without_a_database(told):
    code, out, _ = told("--list")
    assert code == 0
    assert [word for word in out.split() if word in NAMES] == NAMES
    code, out, _ = told("--list", "--json", "--only", "memory")
    assert code == 0
    assert [each["name"] for each in json.loads(out)] == ["memory"]


def test_a_failing_family_of_measurements_fails_its_own_lines_only(measured, schemas):
    def fails_in_the_middle(*_):
        yield Measured("first", 2.0)
        raise PartboxError("the worker processes ended: out of luck")

    found = measured(fails_in_the_middle)
    assert [each.standing for each in found.values()] == ["met", "failed", "met"]
    assert found["second"].note == "the worker processes ended: out of luck"
    assert schemas() == []


def test_a_statement_that_the_server_refuses_fails_the_lines_of_its_family(measured):
    def refused(database, _):
        yield Measured("first", float(database.conn.execute("select 1 / 0").fetchone()[0]))

    found = measured(refused)
    assert [each.standing for each in found.values()] == ["failed", "failed", "met"]
    assert found["first"].note == "division by zero"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_schema_is_removed_whatever_ends_the_bench(measured, schemas, error):
    def raises(*_):
        yield Measured("first", 2.0)
        raise error

    if error is KeyboardInterrupt:
        assert [each.standing for each in measured(raises).values()] == ["met", "skipped", "skipped"]
    else:
        with pytest.raises(error):
            measured(raises)
    assert schemas() == []


def test_a_lost_connection_ends_the_bench_and_another_connection_removes_the_schema(measured, schemas):
    def loses(database, _):
        database.conn.execute("select pg_terminate_backend(pg_backend_pid())")
        yield Measured("first", 2.0)

    with pytest.raises(psycopg.OperationalError):
        measured(loses)
    assert schemas() == []


def test_a_measurement_that_this_machine_cannot_make_is_skipped_with_the_reason(monkeypatch, empty_dsn):
    monkeypatch.setattr(drain, "usable_processors", lambda: 1)
    monkeypatch.setattr(latency, "is_here", lambda _: False)
    report = perform(BenchPlan(empty_dsn, frozenset({"drain-two", "cpu-100"}), QUICK), StringIO())
    assert [each.standing for each in report.results] == ["skipped", "skipped"]
    two, cpu = report.results
    assert two.note == "this machine has one processor: two processes have nowhere to run side by side"
    assert cpu.note == "the server runs on another machine, where the CPU of its processes cannot be read"
    assert report.code == 0
