"""An event shares the fate of the caller's transaction, and the connection stays as it was."""

from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row, namedtuple_row, scalar_row
from reading import count, delivered

from partbox import Event, Outbox
from partbox.db.schema.migrate import migrate
from partbox.errors import PublishError, SchemaError
from partbox.publish.writing import COPY_FROM_EVENTS

EVENT = Event("OrderPlaced", {"id": 42}, aggregate_type="Order", aggregate_id="42")
MANY = [Event("T", n) for n in range(COPY_FROM_EVENTS)]


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


def test_a_committed_event_is_in_the_log(outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]) -> None:
    with psycopg.connect(dsn) as app, app.transaction():
        event_id = outbox.publish(app, EVENT)
        assert delivered(conn) == []
    (event,) = delivered(conn)
    assert event_id == event.event_id == EVENT.event_id
    assert event_id is not None
    assert event_id.version == 7
    assert (event.event_type, event.aggregate_type, event.aggregate_id) == ("OrderPlaced", "Order", "42")
    assert event.payload == {"id": 42}


def test_the_shorthand_without_an_event_object_publishes_the_same(
    outbox: Outbox, conn: psycopg.Connection[Any]
) -> None:
    with conn.transaction():
        outbox.publish(conn, "OrderPlaced", {"id": 42}, aggregate_type="Order", aggregate_id="42", headers={"a": "b"})
        outbox.publish(conn, "Nothing", None)
    placed, nothing = delivered(conn)
    assert (placed.payload, placed.aggregate_id, placed.headers) == ({"id": 42}, "42", {"a": "b"})
    assert (nothing.payload, nothing.aggregate_type, nothing.aggregate_id) == (None, "__GLOBAL__", None)


def test_the_shorthand_needs_a_payload_and_an_event_takes_no_further_fields(
    outbox: Outbox, conn: psycopg.Connection[Any]
) -> None:
    with conn.transaction():
        with pytest.raises(PublishError, match="has no payload"):
            outbox.publish(conn, "OrderPlaced")
        with pytest.raises(PublishError, match="already has its payload"):
            outbox.publish(conn, EVENT, tenant_id="t")
    assert count(conn) == 0


def test_a_rolled_back_transaction_leaves_no_event(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    with conn.transaction(force_rollback=True):
        outbox.publish(conn, EVENT)
        outbox.publish_many(conn, MANY)
        assert count(conn) == 1 + COPY_FROM_EVENTS
    assert count(conn) == 0


def test_a_savepoint_rollback_removes_the_event(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    with conn.transaction():
        outbox.publish(conn, EVENT)
        with conn.transaction(force_rollback=True):
            outbox.publish_many(conn, MANY)
            outbox.publish(conn, MANY[0])
    assert [event.event_id for event in delivered(conn)] == [EVENT.event_id]


def test_autocommit_without_a_transaction_is_refused_with_the_remedy(
    outbox: Outbox, conn: psycopg.Connection[Any]
) -> None:
    with pytest.raises(PublishError, match=r"no transaction: open one with `with conn.transaction\(\):`"):
        outbox.publish(conn, EVENT)
    with pytest.raises(PublishError, match=r"outbox.transaction\(\)"):
        outbox.publish_many(conn, MANY)
    assert count(conn) == 0


def test_the_implicit_transaction_of_psycopg_is_accepted(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    with psycopg.connect(dsn) as app:
        outbox.publish(app, EVENT)
        outbox.publish_many(app, MANY)
        assert app.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        app.rollback()
        assert count(conn) == 0
        outbox.publish(app, EVENT)
    assert count(conn) == 1


def test_a_failed_transaction_has_its_own_message(outbox: Outbox, dsn: str) -> None:
    with psycopg.connect(dsn) as app:
        with pytest.raises(psycopg.errors.DivisionByZero):
            app.execute("select 1 / 0")
        with pytest.raises(PublishError, match="the transaction has failed: roll back"):
            outbox.publish(app, EVENT)
        app.rollback()


def test_a_closed_or_busy_connection_is_refused_with_its_own_message(outbox: Outbox, dsn: str) -> None:
    app = psycopg.connect(dsn)
    with app.cursor().copy("copy (select 1) to stdout") as copy:
        with pytest.raises(PublishError, match="busy"):
            outbox.publish(app, EVENT)
        assert [*copy.rows()] == [("1",)]
    app.close()
    with pytest.raises(PublishError, match="closed"):
        outbox.publish(app, EVENT)


def test_something_else_than_a_connection_is_refused(outbox: Outbox, dsn: str) -> None:
    with pytest.raises(PublishError, match="no connection or session as its first argument, but a value of type str"):
        outbox.publish(dsn, EVENT)  # type: ignore[arg-type]


def test_a_prepared_transaction_carries_the_event(outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]) -> None:
    with psycopg.connect(dsn) as app:
        app.tpc_begin(app.xid(1, "publish", "test"))
        outbox.publish(app, EVENT)
        app.tpc_prepare()
        assert count(conn) == 0
        app.tpc_commit()
    assert count(conn) == 1


ROWS = [dict_row, namedtuple_row, scalar_row]
THRESHOLDS = [None, 0, 5]
CURSORS = [psycopg.Cursor, psycopg.ClientCursor, psycopg.RawCursor]
PAIRS = [(ROWS[n], THRESHOLDS[(n + shift) % 3], CURSORS[shift]) for n in range(3) for shift in range(3)]


@pytest.mark.parametrize(
    "combinations",
    [
        pytest.param(PAIRS, id="pairs"),
        pytest.param([*product(ROWS, THRESHOLDS, CURSORS)], id="all", marks=pytest.mark.soak),
    ],
)
def test_any_setting_of_the_connection_works_and_stays(outbox: Outbox, dsn: str, combinations: list[Any]) -> None:
    for done, values in enumerate(combinations, 1):
        settings = dict(zip(("row_factory", "prepare_threshold", "cursor_factory"), values, strict=True))
        with psycopg.connect(dsn, autocommit=True, **settings) as app:
            with app.transaction():
                for _ in range(7):
                    outbox.publish(app, Event("T", 1, deliver_after=60))
                outbox.publish_many(app, [Event("T", n, deliver_after=60) for n in range(COPY_FROM_EVENTS)])
            assert count(app) == (7 + COPY_FROM_EVENTS) * done, settings
            assert {name: getattr(app, name) for name in settings} == settings
            assert app.autocommit
            assert app.info.transaction_status == psycopg.pq.TransactionStatus.IDLE, settings


@pytest.mark.parametrize("autocommit", [True, False])
def test_pipeline_mode_works(outbox: Outbox, dsn: str, conn: psycopg.Connection[Any], autocommit: bool) -> None:
    with psycopg.connect(dsn, autocommit=autocommit) as app:
        with app.pipeline(), app.transaction():
            app.execute("select 1")
            outbox.publish(app, EVENT)
            ids = outbox.publish_many(app, MANY)
            outbox.publish(app, Event("T", "last"))
            assert app.pgconn.pipeline_status != psycopg.pq.PipelineStatus.OFF
        app.commit() if not autocommit else None
    assert [event.event_id for event in delivered(conn)][:-1] == [EVENT.event_id, *ids]
    assert count(conn) == 2 + COPY_FROM_EVENTS


def test_a_pipeline_without_a_transaction_is_refused(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    with conn.pipeline():
        conn.execute("select 1")
        with pytest.raises(PublishError, match="no transaction"):
            outbox.publish(conn, EVENT)
        with pytest.raises(PublishError, match="no transaction"):
            outbox.publish_many(conn, MANY)
    assert count(conn) == 0


def test_outbox_transaction_commits_or_rolls_back(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    with outbox.transaction() as tx:
        outbox.publish(tx, EVENT)
    assert tx.closed

    def fail() -> None:
        with outbox.transaction() as tx:
            outbox.publish(tx, EVENT)
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert count(conn) == 1


def test_a_dsn_may_be_a_callable_asked_for_each_connection(dsn: str, conn: psycopg.Connection[Any]) -> None:
    asked: list[str] = []

    def rotating() -> str:
        asked.append(dsn)
        return dsn

    outbox = Outbox(rotating)
    for _ in range(2):
        with outbox.transaction() as tx:
            outbox.publish(tx, EVENT)
    assert (len(asked), count(conn)) == (2, 2)


def test_a_missing_schema_names_init(dsn: str, conn: psycopg.Connection[Any]) -> None:
    outbox = Outbox(dsn, schema="elsewhere")
    for publish in (lambda: outbox.publish(conn, EVENT), lambda: outbox.publish_many(conn, MANY)):
        with pytest.raises(SchemaError, match=r"'elsewhere' is missing .* run `partbox init`"), conn.transaction():
            publish()


def test_a_schema_with_a_hostile_name_takes_events(dsn: str, conn: psycopg.Connection[Any]) -> None:
    name = "o'x\"; drop schema partbox; -- {x} \\"
    migrate(dsn, name)
    outbox = Outbox(dsn, schema=name)
    with conn.transaction():
        outbox.publish(conn, EVENT)
        outbox.publish_many(conn, [Event("T", n, deliver_after=1) for n in range(COPY_FROM_EVENTS)])
    statement = psycopg.sql.SQL("select id from {} order by id").format(psycopg.sql.Identifier(name, "record"))
    found = conn.execute(statement)
    assert found.fetchall() == [(n,) for n in range(1, 2 + COPY_FROM_EVENTS)]
    assert count(conn) == 0
