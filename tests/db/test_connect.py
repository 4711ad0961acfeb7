"""The connections of workers: their session options, and the form of what they read."""

from uuid import UUID

import psycopg
import pytest
from ownership import LEASE, SCHEMA, Conn, worker
from polling import ask, poll, write
from psycopg import sql

from partbox.db import connect as connections
from partbox.db.blocking import use_raw_loaders
from partbox.db.connect import ConnectPatience, build_parameters, connect
from partbox.db.delivery import idle_check, records
from partbox.db.sql import load_query


def test_a_worker_connection_overrules_the_settings_of_the_role_and_the_database(dsn, conn):
    name = sql.Identifier(conn.info.dbname)
    for setting in (
        "jit = on",
        "statement_timeout = 0",
        "idle_in_transaction_session_timeout = 0",
        "default_transaction_isolation = 'serializable'",
    ):
        conn.execute(sql.SQL("alter database {} set " + setting).format(name))
    with connect(dsn, lease=1.5) as own:
        assert {
            each: _setting(own, each)
            for each in ("jit", "statement_timeout", "idle_in_transaction_session_timeout", "transaction_isolation")
        } == {
            "jit": "off",
            "statement_timeout": "1500ms",
            "idle_in_transaction_session_timeout": "750ms",
            "transaction_isolation": "read committed",
        }
        assert own.autocommit


def test_options_that_the_dsn_carries_are_kept(dsn):
    with connect(psycopg.conninfo.make_conninfo(dsn, options="-c work_mem=5MB"), lease=6) as own:
        assert _setting(own, "work_mem") == "5MB"
        assert _setting(own, "jit") == "off"


@pytest.mark.parametrize(
    ("dsn", "each"),
    [
        ("host=a", 12),
        ("", 12),
        ("host=a,b", 6),
        ("postgresql://app@a,b,c/shop", 4),
        ("host=a,b hostaddr=10.0.0.1,10.0.0.2", 6),
        ("host=a,b,c,d,e,f,g,h", 2),
        ("host=a,b connect_timeout=9", "9"),
    ],
)
def test_the_connect_timeout_of_each_server_of_a_dsn_is_a_share_of_the_lease(dsn, each):
    assert build_parameters(dsn, lease=12, pooler=False, name="x")["connect_timeout"] == each


def test_a_server_that_is_slow_to_accept_connections_has_longer_the_next_time(monkeypatch):
    given = []

    def accept(*_, patience):
        given.append(patience)
        if len(given) < 3:
            raise psycopg.errors.ConnectionTimeout("connection timeout expired")

    monkeypatch.setattr(connections, "connect", accept)
    patience = ConnectPatience()
    for _ in range(2):
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            patience.connect("host=a")
    patience.connect("host=a")
    patience.reset()
    patience.connect("host=a")
    assert given == [1, 2, 2, 1]
    parameters = build_parameters("host=a,b", lease=6, pooler=False, name="x", patience=2)
    assert parameters["connect_timeout"] == 6


def test_behind_a_pooler_no_option_is_sent(dsn):
    with connect(dsn, lease=6, pooler=True) as own, psycopg.connect(dsn) as plain:
        for each in ("jit", "statement_timeout", "idle_in_transaction_session_timeout"):
            assert _setting(own, each) == _setting(plain, each)


def test_no_statement_outlives_the_lease(dsn, conn):
    write(conn)
    with connect(dsn, lease=0.2) as own, conn.transaction():
        conn.execute("lock table partbox.record in access exclusive mode")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            poll(own, ask())


def test_nothing_is_prepared_on_a_connection_that_was_opened_without_prepared_statements(dsn, conn):
    write(conn)
    with connect(dsn, lease=LEASE) as own:
        use_raw_loaders(own)
        for _ in range(12):
            poll(own, ask())
            idle_check.run_check(own, SCHEMA, [])
            records.load_bodies(own, SCHEMA, [(5, 1)])
            own.execute(load_query("subscribed", SCHEMA), {"subscription": "default"})
        assert own.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)


def test_a_poll_on_a_lost_connection_raises_an_operational_error(dsn, conn):
    with worker(dsn) as own:
        conn.execute("select pg_terminate_backend(%s, 5000)", [own.info.backend_pid])
        with pytest.raises(psycopg.OperationalError):
            poll(own, ask())
        assert own.closed


def test_connections_with_raw_loaders_keep_rarely_used_columns_as_raw_bytes(dsn, conn):
    write(conn)
    event_id, created = conn.execute(
        "select event_id, (extract(epoch from created_at - '2000-01-01 00:00Z') * 1000000)::bigint from partbox.record"
    ).fetchone()
    with worker(dsn) as own:
        use_raw_loaders(own)
        ((partition, id, raw_id, kind, aggregate, key, tenant, payload, *_, created_at, _),) = records.load_bodies(
            own, SCHEMA, [(5, 1)]
        )
        assert (partition, id, kind, aggregate, key, tenant) == (5, 1, "E", "__GLOBAL__", "a", None)
        assert (raw_id, payload) == (event_id.bytes, b'{"n": 1}')
        assert int.from_bytes(created_at, signed=True) == created


def test_raw_loaders_on_one_connection_do_not_affect_other_connections(dsn, conn):
    write(conn)
    with worker(dsn) as own:
        use_raw_loaders(own)
    (row,) = records.load_bodies(conn, SCHEMA, [(5, 1)])
    assert isinstance(row[2], UUID)
    assert row[7] == {"n": 1}


def _setting(conn: Conn, name: str) -> str:
    return conn.execute("select current_setting(%s)", [name]).fetchone()[0]
