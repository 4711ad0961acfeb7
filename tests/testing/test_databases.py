"""The databases of the kit: an application's own tables, and connections that stay."""

from collections.abc import Iterator

import psycopg
import pytest

from partbox.embedded.server import Server
from partbox.testing import Kit
from partbox.testing.databases import Shelf
from partbox.testing.servers import new_template
from partbox.testing.sessions import Sessions

TABLES = """
create schema "Shop";
create table "Shop".customer (name text primary key);
insert into "Shop".customer values ('Eve'), ('Adam');
create table "Shop"."order" (number serial primary key, customer text not null references "Shop".customer);
insert into "Shop"."order" (customer) values ('Eve');
create table plain (a int generated always as identity, b int);
"""
ORDERS = 'select number, customer from "Shop"."order" order by 1'


def prepare(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(TABLES)


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    sessions = Sessions()
    yield sessions
    sessions.close()


@pytest.fixture
def shelf(server: Server, sessions: Sessions) -> Iterator[Shelf]:
    with new_template(server.dsn, "partbox", prepare) as template:
        shelf = Shelf(server.dsn, template, sessions)
        yield shelf
        shelf.close()


def test_tables_that_refer_to_each_other_are_reset_in_place(shelf):
    for _ in range(3):
        with psycopg.connect(shelf.lend()) as conn:
            assert conn.execute(ORDERS).fetchall() == [(1, "Eve")]
            assert conn.execute("insert into plain (b) values (7) returning a").fetchone() == (1,)
            conn.execute('insert into "Shop"."order" (customer) values (\'Adam\')')
            assert conn.execute(ORDERS).fetchall() == [(1, "Eve"), (2, "Adam")]
            conn.execute('delete from "Shop"."order"')
            conn.execute("update \"Shop\".customer set name = 'Cain' where name = 'Adam'")
        shelf.take_back()
    assert shelf.clones == 1


def test_a_change_of_the_definition_of_application_tables_makes_a_new_clone(shelf):
    with psycopg.connect(shelf.lend()) as conn:
        conn.execute("alter table plain add c int")
    shelf.take_back()
    with psycopg.connect(shelf.lend()) as conn:
        conn.execute("insert into plain (b) values (1)")
    shelf.take_back()
    assert shelf.clones == 2


def test_connections_of_the_kit_stay_open_and_their_writes_are_reset(shelf, sessions, shop):
    pids = set()
    for _ in range(3):
        dsn = shelf.lend()
        with Kit(shop.outbox, dsn, sessions=sessions) as kit:
            assert kit.published() == []
            kit.publish("Noted", 1, aggregate_id="7")
            kit.publish("Failing", 1, aggregate_id="8")
            assert kit.drain().states == ["done", "retrying"]
            pids.add(frozenset(sessions.pids()))
        shelf.take_back()
    assert shelf.clones == 1
    assert len(pids) == 1


def test_a_connection_that_a_test_has_ended_is_replaced(shelf, sessions, shop):
    dsn = shelf.lend()
    with Kit(shop.outbox, dsn, sessions=sessions) as kit:
        kit.publish("Noted", 1)
        kit.drain().assert_done()
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
    shelf.take_back()
    with Kit(shop.outbox, shelf.lend(), sessions=sessions) as kit:
        assert kit.published() == []
        kit.publish("Noted", 1)
        kit.drain().assert_done()
    shelf.take_back()


def test_a_transaction_left_open_on_a_reused_connection_is_rolled_back(shelf, sessions, shop):
    with Kit(shop.outbox, shelf.lend(), sessions=sessions) as kit:
        kit._drainer.connection().execute("begin")
        kit._drainer.connection().execute("insert into public.plain (b) values (1)")
    shelf.take_back()
    with Kit(shop.outbox, shelf.lend(), sessions=sessions) as kit:
        assert kit._drainer.connection().execute("select count(*) from public.plain").fetchone() == (0,)
    shelf.take_back()
