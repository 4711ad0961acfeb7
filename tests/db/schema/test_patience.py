"""A migration that needs a lock which somebody has: it says for whom it waits, and publishers do not wait with it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from next_migration import LATER, NEWEST, known
from ownership import background
from psycopg import sql
from waiting import eventually

from partbox.db.schema import lock_retry
from partbox.db.schema import migrate as migrations
from partbox.db.schema.migrate import migrate, migrate_in
from partbox.db.schema.scripts import build_script
from partbox.errors import SchemaError

Conn = psycopg.Connection[Any]
PUBLISH = (
    "insert into partbox.record (partition, event_id, event_type, payload) values (1, gen_random_uuid(), 'T', '1')"
)
VERSION = "select value::integer from partbox.meta where key = 'schema_version'"


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let migrations wait for a lock, and rest, for a tenth of the seconds that they ship with."""
    shipped = migrations.fixed_script

    def hurried(name: str, schema: str, /, **values: object) -> sql.Composed:
        text = shipped(name, schema, **values)
        return text + sql.SQL("set local lock_timeout = '200ms';\n") if name == "begin" else text

    monkeypatch.setattr(migrations, "fixed_script", hurried)
    monkeypatch.setattr(lock_retry, "RETRY_PAUSE", 0.1)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.fixture
def behind(conn: Conn, monkeypatch: pytest.MonkeyPatch) -> Conn:
    """A schema whose next migration builds an index over the log."""
    monkeypatch.setattr(migrations, "migrations", known)
    return conn


@contextmanager
def open_publisher(dsn: str) -> Iterator[Conn]:
    with psycopg.connect(dsn, application_name="a job") as job:
        job.execute(PUBLISH)
        yield job


@pytest.mark.usefixtures("hurried")
def test_a_migration_repeatedly_names_who_holds_it_up_and_lets_others_publish(
    dsn: str, behind: Conn, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ""

    def tried(times: int) -> bool:
        nonlocal said
        said += capsys.readouterr().err
        behind.execute(PUBLISH)
        return said.count(named) >= times

    with background() as run, open_publisher(dsn) as job:
        named = (
            f"schema 'partbox' is not migrated yet, the transaction of pid {job.info.backend_pid} (a job), open for "
        )
        behind.execute("set statement_timeout = '20s'")
        migrating = run(migrate, dsn)
        eventually(lambda: tried(2))
        job.rollback()
        assert migrating.result()[0] == LATER.name
    assert "retrying for up to" in said
    assert behind.execute(VERSION).fetchone() == (LATER.version,)


@pytest.mark.usefixtures("hurried")
def test_a_migration_in_the_transaction_of_another_program_waits_for_locks_too(
    dsn: str, behind: Conn, capsys: pytest.CaptureFixture[str]
) -> None:
    def goes_on() -> bool:
        return "(a job)" in capsys.readouterr().err

    def in_one() -> list[str]:
        with psycopg.connect(dsn) as own:
            own.execute("create table public.theirs ()")
            return migrate_in(own)

    with background() as run, open_publisher(dsn) as job:
        migrating = run(in_one)
        eventually(goes_on)
        job.rollback()
        assert migrating.result() == [LATER.name]
    assert behind.execute("select to_regclass('public.theirs') is not null").fetchone() == (True,)


@pytest.mark.parametrize("ends", ["in time", "interrupted"])
@pytest.mark.usefixtures("hurried")
def test_a_migration_that_gives_up_or_is_interrupted_has_changed_nothing(
    dsn: str, behind: Conn, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    expected = SchemaError if ends == "in time" else KeyboardInterrupt
    with open_publisher(dsn) as job, monkeypatch.context() as patched:
        if ends == "in time":
            patched.setattr(lock_retry, "GIVE_UP_AFTER", 0.0)
        else:
            patched.setattr(lock_retry, "time", SimpleNamespace(monotonic=time.monotonic, sleep=interrupt))
        with pytest.raises(expected) as error:
            migrate(dsn)
        if ends == "in time":
            assert f"pid {job.info.backend_pid} (a job)" in str(error.value)
            assert "nothing was changed" in str(error.value)
    assert behind.execute(VERSION).fetchone() == (NEWEST,)
    assert migrate(dsn)[0] == LATER.name


def test_a_script_does_not_keep_publishers_waiting_either(dsn: str, behind: Conn) -> None:
    with open_publisher(dsn), psycopg.connect(dsn, autocommit=True) as psql:
        psql.execute("set statement_timeout = '20s'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            psql.execute(build_script(since=NEWEST).encode())
        psql.execute("rollback")
    assert behind.execute(VERSION).fetchone() == (NEWEST,)
