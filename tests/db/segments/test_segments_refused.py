"""What the server refuses to do to segments, as by an event trigger that fails, keeps nothing else from being done."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.errors import OperationalError
from purgeable import Planted

from partbox.operations.purge import Purged, purge
from partbox.segments.attempts import Attempts
from partbox.settings import load

LOG = """
create table ddl_log (tag text);
create function log_ddl() returns event_trigger language plpgsql as
$$begin insert into ddl_log select tg_tag; end$$;
create event trigger ddl_log on ddl_command_end execute function log_ddl();
"""
REFUSES = """
create or replace function partbox.segment_add(lower bigint, upper bigint) returns text language plpgsql as
$$begin raise exception 'out of order'; end$$
"""
REMEDY = "alter function public.log_ddl() set search_path = public"


@pytest.fixture
def logged(conn: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """A database whose DDL is logged by a trigger that names its table without a schema."""
    conn.execute(LOG)
    yield conn
    conn.execute("drop event trigger if exists ddl_log")


@pytest.fixture
def purged(dsn: str) -> Callable[[], Purged]:
    return lambda: purge(lambda: dsn, load(retain_keys="7d"))


def noted(conn: psycopg.Connection[Any]) -> object:
    return (conn.execute("select value from partbox.meta where key = 'segments_failed'").fetchone() or (None,))[0]


def test_a_purge_goes_on_where_no_segment_can_be_made_and_names_the_event_trigger(logged, purged, planted: Planted):
    planted.record(5, age=9 * 86_400)
    planted.consume(5)
    logged.execute("insert into partbox.idempotency select 'k', gen_random_uuid(), now() - interval '8 days'")
    done = purged()
    assert (done.records, done.keys, done.complete) == (1, 1, True)
    assert 'relation "ddl_log" does not exist' in done.untended
    assert "ddl_log (ddl_command_end, public.log_ddl())" in done.untended
    assert "`alter function public.log_ddl() set search_path = …`" in done.untended
    assert noted(logged) == 'relation "ddl_log" does not exist'


def test_segments_are_made_once_the_remedy_was_followed(logged, purged):
    assert purged().untended
    logged.execute(REMEDY)
    assert purged().untended is None
    assert noted(logged) is None
    assert logged.execute("select count(*) from partbox.segment_ranges() where lower >= 10000000").fetchone() == (3,)


@pytest.mark.parametrize("statement", ["drop event trigger ddl_log", "alter event trigger ddl_log disable"])
def test_a_trigger_that_does_not_run_is_not_named(logged, purged, statement):
    logged.execute(statement)
    logged.execute(REFUSES)
    done = purged()
    assert done.untended is not None
    assert "ddl_log" not in done.untended


def test_a_lost_connection_is_no_refusal(conn, dsn):
    def step() -> None:
        conn.execute("select pg_terminate_backend(%s)", [other.info.backend_pid])
        other.execute("select 1")

    with psycopg.connect(dsn, autocommit=True) as other, pytest.raises(OperationalError):
        Attempts().run_step(step, None)
