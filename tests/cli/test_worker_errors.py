"""What stands in the way of `partbox worker`: one line, the remedy, an exit code, and nothing written."""

import os
from pathlib import Path

import psycopg
import pytest

from partbox import Outbox

SHOP = """
from partbox import Outbox

outbox = Outbox()


@outbox.on("OrderPlaced")
@outbox.on("OrderPlaced", subscription="audit")
def confirm(event): ...
"""
BARE = """
from partbox import Outbox

outbox = Outbox()


@outbox.on
def confirm(event): ...
"""
EMPTY = """
from partbox import Outbox

outbox = Outbox()
outbox.register(print, "OrderPlaced", subscription="audit")
"""


@pytest.fixture
def worker(tmp_path: Path, forks):
    (tmp_path / "shop.py").write_text(SHOP)

    def run(dsn: str, *flags: str) -> tuple[int, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
        process = forks.start(
            "partbox", "worker", "shop:outbox", *flags, cwd=tmp_path, env={**kept, "PARTBOX_DSN": dsn}
        )
        _, said = process.communicate()
        return process.wait(), said

    return run


@pytest.mark.parametrize(
    ("dsn", "says"),
    [
        ("", "set PARTBOX_DSN, pass --dsn"),
        ("nonsense", 'the DSN cannot be read: it has a word without "="'),
        ("postgresql://someone:s3cret@127.0.0.1:1/shop", "check --dsn or PARTBOX_DSN, and that the server runs"),
    ],
    ids=["none", "unreadable", "nobody there"],
)
def test_a_broken_dsn_is_one_line(worker, dsn, says):
    code, said = worker(dsn)
    assert code == 1
    assert says in said
    assert len(said.splitlines()) == 1
    assert "s3cret" not in said


def test_a_missing_schema_and_a_missing_subscription_are_one_line(worker, dsn, empty_dsn):
    for given, flags, says in [
        (empty_dsn, (), "run `partbox init`"),
        (dsn, ("--schema", "other"), "run `partbox init --schema other`"),
        (dsn, ("--subscription", "audit"), "there is no subscription 'audit'"),
    ]:
        code, said = worker(given, *flags)
        assert code == 1
        assert says in said
        assert len(said.splitlines()) == 1
    with psycopg.connect(dsn) as conn:
        assert conn.execute("select count(*) from partbox.instance").fetchone() == (0,)


def test_a_logical_copy_is_refused_before_anything_is_delivered(worker, dsn):
    with psycopg.connect(dsn) as conn:
        conn.execute("update partbox.meta set xid = '3' where key = 'marker'")
    code, said = worker(dsn)
    assert code == 1
    assert "partbox rebase" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("shop", "says"),
    [
        (BARE, "(shop.py:7): @outbox.on stands above shop.confirm without an event type, and would register nothing: "),
        (EMPTY, "in module 'shop', which was imported, or in a module that it imports, such as @outbox.on("),
        (EMPTY, "subscription 'default' has no handler, so a worker would deliver none of its events"),
        (EMPTY, "there are handlers of 'audit'"),
    ],
)
def test_a_module_without_handlers_is_refused_in_one_line_and_nothing_is_delivered(worker, dsn, tmp_path, shop, says):
    (tmp_path / "shop.py").write_text(shop)
    with psycopg.connect(dsn, autocommit=True) as conn:
        with conn.transaction():
            Outbox(dsn).publish(conn, "OrderPlaced", None)
        code, said = worker(dsn, "--until-empty")
        assert code == 1
        assert says in said
        assert len(said.splitlines()) == 1
        assert conn.execute("select status from partbox.record_status").fetchall() == [("pending",)]
        assert conn.execute("select count(owner) from partbox.partition").fetchone() == (0,)


STATELESS = """
from partbox import DeliveredEvent, Outbox

outbox = Outbox()


class State: ...


@outbox.on("OrderPlaced")
def confirm(event: DeliveredEvent, state: State): ...
"""


def test_a_handler_that_asks_for_state_without_a_lifespan_is_reported_in_one_line(worker, dsn, tmp_path):
    (tmp_path / "shop.py").write_text(STATELESS)
    code, said = worker(dsn)
    assert code == 1
    assert "asks for State, which no event provides and no lifespan yields: put @outbox.lifespan above" in said
    assert len(said.splitlines()) == 1
