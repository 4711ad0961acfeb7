"""Whatever is typed: a command ends with 0, 1 or 2, shows no traceback, and changes nothing when it fails.

The arguments are made from the commands' own parameters, so a new command or option is tried without being named here.
"""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from planted_records import Planter
from psycopg import sql
from run_size import examples

from partbox.cli import command as whole
from partbox.cli import main

REAL = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
FOR_EVER = {"bench", "chaos", "dashboard", "demo", "top", "worker"}
"""Commands that run for minutes, or until they are stopped: called with an option too many, or without a target."""
NOT_TRIED = {"watch"}
LISTS = ("events",)
"""A group that lists what a target has: `events shop:outbox`, without a command."""
GARBAGE = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
NUMBERS = ["0", "1", "-1", "4711", "9" * 40, "1.5", "nan", "1e999", "٣"]
MOMENTS = ["now", "beginning", "2026-01-31T09:00:00Z", "2026-99-99", "99999-01-01", "0001-01-01T00:00:00+14:00"]
TIMES = ["0s", "1ms", "5x", "-1s", "1e400s"]
NAMES = [
    "default",
    "audit",
    "",
    " ",
    "x" * 101,
    "partbox",
    "other",
    "pg_catalog",
    "x" * 64,
    "a;drop schema partbox--",
    "%s",
]
IDS = [
    "019b0000-0000-7000-8000-000000000000",
    "Order/7",
    "Order:7",
    "7",
    "Placed",
    "Order",
    "--",
    "-",
    "\u202eabc",
    "\x1b[31m",
]
NOWHERE = ["postgresql://nobody@127.0.0.1:1/x", "garbage", "postgresql://[", "host", "://", "=", "postgresql://h:port/"]
VALUES = st.sampled_from([*NUMBERS, *MOMENTS, *TIMES, *NAMES, *IDS]) | GARBAGE
PER_NAME = {"dsn": NOWHERE, "every": ["5x", "-1s", "", "nan"], "timeout": TIMES}


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(whole()))
SHORT = {path: command for path, command in COMMANDS.items() if path[0] not in FOR_EVER}


def value_of(parameter: Any) -> st.SearchStrategy[str]:
    special = PER_NAME.get(parameter.name)
    return st.sampled_from(special) if special else VALUES


def written(parameter: Any) -> st.SearchStrategy[list[str]]:
    """The parameter as it may be typed, well or badly."""
    if not hasattr(parameter, "is_flag"):  # an argument
        return value_of(parameter).map(lambda text: [text])
    option = st.sampled_from([*parameter.opts, *parameter.secondary_opts])
    if parameter.is_flag:
        return option.map(lambda name: [name])
    return st.builds(lambda name, text: [name, text], option, value_of(parameter))


@cache
def arguments(path: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    """What somebody may type after the command's name."""
    parameters = [each for each in COMMANDS[path].params if each.name not in NOT_TRIED]
    known = [written(parameter) for parameter in parameters if not getattr(parameter, "hidden", False)]
    settings = [written(parameter) for parameter in parameters if getattr(parameter, "hidden", False)]
    stray = st.one_of(GARBAGE.filter(lambda text: not text.startswith("-")), st.just("--nonsense"), st.just("--"))
    some = st.lists(st.one_of(*known, *known, *known, stray.map(lambda text: [text]), st.one_of(*settings)), max_size=4)
    return some.map(lambda parts: [word for part in parts for word in part])


def run(*typed: str) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "stdin", io.StringIO("")),
        pytest.raises(SystemExit) as exit,
    ):
        main(typed)
    return Ran(int(exit.value.code or 0), out.getvalue(), err.getvalue())


def judged(*typed: str) -> Ran:
    """What it came to, which is never a traceback; an error of ours is one line that acts on no terminal."""
    ran = run(*typed)
    assert ran.code in (0, 1, 2), ran
    assert "Traceback" not in ran.out + ran.err
    if ran.code and ran.err.startswith("partbox: "):
        assert ran.err.count("\n") == 1
        assert ran.err.removesuffix("\n").isprintable()
    if ran.code:
        assert ran.out or ran.err, "it says why"
    return ran


def contents(conn: psycopg.Connection[Any]) -> dict[str, Any]:
    """Every schema, table and row."""
    tables = conn.execute(
        "select schemaname, tablename from pg_tables where schemaname not in ('pg_catalog', 'information_schema')"
    ).fetchall()
    digest = "select md5(string_agg(t::text, '|' order by t::text)) from {} t"
    return {
        f"{schema}.{table}": conn.execute(sql.SQL(digest).format(sql.Identifier(schema, table))).fetchone()
        for schema, table in tables
    }


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dsn: str) -> None:
    for variable in [name for name in os.environ if name.startswith("PARTBOX_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def planted(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """An outbox with something to harm."""
    planter = Planter(conn)
    for aggregate_id in ("7", "\u202eé", "a\nb"):
        planter.park(aggregate_id, "dead")
        planter.park(aggregate_id, "retrying", blocks=True, attempts=1, due=3_600.0, error="\x1b[31mboom\u202e" * 500)
        planter.park(aggregate_id, "held", blocks=True, attempts=0)
    planter.publish("7")
    return conn


@settings(REAL, max_examples=examples(50), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
def test_an_arbitrary_command_line_ends_with_a_proper_exit_code_and_an_error_changes_nothing(
    planted: psycopg.Connection[Any], data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(sorted(SHORT)), label="command")
    typed = data.draw(arguments(path), label="arguments")
    before = contents(planted)
    if judged(*path, *typed).code:
        assert contents(planted) == before


@settings(REAL, max_examples=examples(30))
@given(data=st.data())
def test_a_long_running_command_with_a_wrong_option_is_refused(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(COMMANDS.keys() - SHORT.keys())), label="command")
    typed = [word for word in data.draw(arguments(path), label="arguments") if word != "--"]
    assert judged(*path, "--nonsense", *typed).code == 2


@settings(REAL, max_examples=examples(30))
@given(target=VALUES | st.builds("{}:{}".format, GARBAGE, GARBAGE), more=st.sampled_from([(), ("--until-empty",)]))
def test_an_arbitrary_target_is_refused(target: str, more: tuple[str, ...]) -> None:
    for command in ("worker", "handlers", *LISTS):
        assert judged(command, *more * (command == "worker"), "--", target).code in (1, 2)


@settings(REAL, max_examples=examples(60))
@given(typed=st.lists(GARBAGE | st.sampled_from([word for path in COMMANDS for word in path]), max_size=3))
def test_unknown_commands_are_refused(typed: list[str]) -> None:
    if tuple(typed[:2]) in COMMANDS or tuple(typed[:1]) in COMMANDS or typed[:1] == [*LISTS]:
        typed = ["--nonsense", *typed]
    assert judged(*typed).code in (0, 2)


def test_every_command_says_what_it_does() -> None:
    for path in COMMANDS:
        ran = judged(*path, "--help")
        assert ran.code == 0
        assert "Usage: partbox" in ran.out
