"""The table of log events against the code that logs, and against the page that shows it."""

import ast
import logging
import re
from functools import cache
from pathlib import Path

import pytest
from source_trees import parsed

import partbox
from partbox.observe.logs.table import EVENT, LOG_EVENTS, PREFIX, LogEvent

SOURCE = Path(partbox.__file__).parent
TABLE = SOURCE / "observe" / "logs" / "table.py"
DOCUMENT = SOURCE.parent / "docs" / "logs.md"
PLAIN = {"observe/logs/log_event.py", "interceptors/wrap.py"}
"""Who may call a logger itself: the one that does it for all, and one that is below it."""
ASIDE = ("demo",)
"""Rooms whose lines are a performance."""
LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")
KNOWN = {"about", "trace"}
TELLING = ("log_event", "log", "_log", "log_partitions", "_tell", "_log_circuit")


@cache
def calls() -> list[tuple[str, ast.Call]]:
    """Every call in the code, with its file."""
    files = (path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in ASIDE)
    return [
        (str(path.relative_to(SOURCE)), node)
        for path, tree in parsed(files).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    ]


def constants(node: ast.expr) -> set[str]:
    """The texts that an expression can be: a text, a choice of two, or names that are assigned one elsewhere."""
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.IfExp(body=body, orelse=orelse):
            return constants(body) | constants(orelse)
    return set()


def told() -> list[tuple[str, set[str], set[str]]]:
    """Of every line that is told: where, the names that it may have, its fields."""
    found = []
    for path, call in calls():
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name not in TELLING or path == "observe/logs/log_event.py":
            continue
        at = 1 if name == "log_event" else 0
        fields = {keyword.arg for keyword in call.keywords if keyword.arg} - KNOWN
        if len(call.args) > at:
            found.append((f"{path}:{call.lineno}", constants(call.args[at]), fields))
    return found


def test_every_log_call_goes_through_the_table_of_log_events():
    past = [
        f"{path}:{call.lineno}"
        for path, call in calls()
        if path not in PLAIN
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in LEVELS
        and getattr(call.func.value, "id", None) in ("log", "logger", "logging")
    ]
    assert past == []


def test_every_log_call_uses_only_the_fields_that_the_table_lists_for_its_event():
    wrong = []
    for place, names, fields in told():
        for name in names & LOG_EVENTS.keys():
            strange = fields - set(LOG_EVENTS[name].fields)
            wrong += [(place, name, field) for field in strange]
    assert wrong == []


def test_every_log_event_of_the_table_is_used_in_the_code():
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py") if path != TABLE)
    unused = {name for name in LOG_EVENTS if f'"{name}"' not in text and f"partbox.{name}" not in text}
    assert unused == set()


@pytest.mark.parametrize("name", ["dead", "decode_error", "loop_error", "fence_rejection", "crash"])
def test_events_of_trouble_are_logged_as_errors(name):
    assert LOG_EVENTS[name].level == logging.ERROR


@pytest.mark.parametrize("name", ["brake", "circuit_open", "slow_handler", "takeover"])
def test_events_with_consequences_are_logged_as_warnings(name):
    assert LOG_EVENTS[name].level == logging.WARNING


@pytest.mark.parametrize(
    "name", ["planned", "purged", "node_started", "node_stopped", "worker_started", "worker_stopped"]
)
def test_events_of_normal_operation_are_logged_as_info(name):
    assert LOG_EVENTS[name].level == logging.INFO


def test_no_field_is_a_place_for_payloads_or_identities():
    fields = {field for each in LOG_EVENTS.values() for field in each.fields} | set(re.split(", ", EVENT))
    assert not fields & {"payload", "headers", "aggregate_id", "tenant_id", "dsn", "error"}
    assert not fields & set(vars(logging.makeLogRecord({})))


def shown(name: str, each: LogEvent) -> tuple[str, str, str]:
    """The name, the level and the fields of a log event as the page shows them."""
    level = logging.getLevelName(each.level) + ("" if each.is_unlimited else " *")
    fields = ", ".join(f"`{field}`" for field in each.fields) + (" + event" if each.has_event_fields else "")
    return f"`{PREFIX}{name}`", level, fields.strip(" +")


def test_the_documentation_page_lists_every_log_event_of_the_table_with_its_meaning():
    page = DOCUMENT.read_text(encoding="utf-8").partition(
        "| event | level | what it means | fields |\n|---|---|---|---|\n"
    )
    rows = [re.split(r" ?\| ?", line)[1:-1] for line in page[2].partition("\n\n")[0].splitlines()]
    assert [(name, level, fields) for name, level, _, fields in rows] == [shown(*each) for each in LOG_EVENTS.items()]
    assert all(re.match("[`A-Z]", meaning) for _, _, meaning, _ in rows)
