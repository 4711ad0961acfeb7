"""The choice of tests that depend on the server's version, and so run on every PostgreSQL of the machine.

A test that uses no server does not, nor do those of the folders and files below: what they show is partbox's own, and
the SQL under it is shown on every version by the others. One of theirs that does is marked `every_version(reason)`.
"""

from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest

SERVERS = {"server", "own_server", "crowded_server"}
"""The fixtures that start the server of PARTBOX_TEST_BINARIES: every test that uses it has one of them."""

ONE = {
    "../lab/tests": "how values are measured, how faults are made; what survives them is the SQL of db/",
    "cli": "what commands print and how they end; what they ask the server is in db/",
    "cluster": "processes that die, freeze and move; their statements are those of db/; a few are marked",
    "dashboard": "pages and HTTP; what they show is read by the queries of db/",
    "db/test_injection.py": "names and values that would be SQL: how they are quoted",
    "demo": "a programme of the command line",
    "django": "commands and pages of a framework; its migrations run the files of sql/",
    "deploy": "files that are checked by the tools they are for, and what a node tells its service manager",
    "docs": "programs of the documentation: the same calls as elsewhere",
    "doctor": "how findings are told; where a check asks the server's own tables it is marked",
    "examples": "programs as a reader types them: the same calls as elsewhere",
    "fuzz": "values that partbox refuses or takes, before they get to the server",
    "grafana": "dashboards and alerts over metrics",
    "http": "a server of our own, and who may ask it",
    "helpers/test_forked.py": "how the tests start processes",
    "hostile": "handlers, objects, networks and slow lines; sessions, and the limits of values, are marked",
    "mutants": "that faults are noticed",
    "observe": "metrics, logs and traces of what happens anywhere",
    "publish/integrations": "how other libraries carry the statements that psycopg carries elsewhere",
    "publish/test_task_arguments.py": "functions as handlers: the same statements as for any event",
    "publish/test_task_programs.py": "the same",
    "publish/test_tasks.py": "the same",
    "sinks": "endpoints over HTTP",
    "supervisor": "processes and how they end",
    "testing": "the kit over what the others show; its databases serve them all",
    "settings/test_dsn_callables.py": "what a callable gives instead of a DSN",
    "worker": "what becomes of events that were read; where snapshots, transactions or sessions matter it is marked",
}
"""Folders and files of tests that run on one version, and why that is enough."""


def every(item: pytest.Item) -> bool:
    """True if the test is to run on every version."""
    return uses_server(item) and (not _of_one(item.path) or item.get_closest_marker("every_version") is not None)


def uses_server(item: pytest.Item) -> bool:
    return not SERVERS.isdisjoint(getattr(item, "fixturenames", ()))


def can_set(conn: psycopg.Connection[Any], name: str) -> bool:
    """False for what changes the meaning of string literals, which is fixed from PostgreSQL 19 on."""
    return conn.info.server_version < 190_000 or name not in {"standard_conforming_strings", "escape_string_warning"}


def none_in(path: Path) -> bool:
    """True if no test of the file can be for every version."""
    return path.suffix == ".py" and _of_one(path) and "every_version" not in path.read_text(encoding="utf-8")


@cache
def _of_one(path: Path) -> bool:
    here = Path(__file__).parent
    return any(path.is_relative_to((here / name).resolve()) for name in ONE)
