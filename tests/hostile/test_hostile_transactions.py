"""Transactional handlers that misuse their connection: only their own event suffers."""

import contextlib

import psycopg
import pytest


def _commits(event, conn):
    conn.execute("commit")


def _rolls_back(event, conn):
    conn.execute("rollback")


def _closes(event, conn):
    conn.close()


def _breaks(event, conn):
    conn.execute("select 1 / 0")


def _swallows(event, conn):
    with contextlib.suppress(psycopg.Error):
        conn.execute("select 1 / 0")


def _sets(event, conn):
    conn.execute("set statement_timeout = 1")
    conn.execute("set search_path = nowhere")
    conn.execute("set datestyle = 'German'")


def _serializable(event, conn):
    conn.execute("set session characteristics as transaction isolation level serializable")


def _read_only(event, conn):
    conn.execute("set transaction read only")


def _savepoint(event, conn):
    conn.execute("savepoint mine")


def _autocommits(event, conn):
    conn.autocommit = True


def _factory(event, conn):
    conn.row_factory = psycopg.rows.dict_row


def _terminates(event, conn):
    conn.execute("select pg_terminate_backend(pg_backend_pid())")


def _listens(event, conn):
    conn.execute("listen x")


def _locks(event, conn):
    conn.execute("lock table partbox.partition in access exclusive mode")


def _own_role(event, conn):
    conn.execute("set role pg_monitor")


IN_A_TRANSACTION = {
    "commits": _commits,
    "rolls back": _rolls_back,
    "closes its connection": _closes,
    "fails in SQL": _breaks,
    "swallows an error of SQL": _swallows,
    "changes its session": _sets,
    "wants to be serializable": _serializable,
    "is read only": _read_only,
    "leaves a savepoint": _savepoint,
    "asks for autocommit": _autocommits,
    "changes the form of rows": _factory,
    "ends its backend": _terminates,
    "listens": _listens,
    "locks the partitions": _locks,
    "takes another role": _own_role,
}


def invite_to_transactions(house, name):
    def handle(event, conn):
        if event.attempt == 1:
            IN_A_TRANSACTION[name](event, conn)

    house.invite(name, handle, None, transactional=True, max_attempts=2)
    house.invite(f"{name}: a neighbour", lambda event, conn: None, None, transactional=True)


def test_a_transactional_handler_harms_its_own_event_at_most(house):
    for name in IN_A_TRANSACTION:
        invite_to_transactions(house, name)
    house.live_in_turn(2)


@pytest.mark.soak
@pytest.mark.parametrize("name", IN_A_TRANSACTION)
def test_each_transactional_handler_alone_harms_its_own_event_at_most(house, name):
    invite_to_transactions(house, name)
    house.live()
