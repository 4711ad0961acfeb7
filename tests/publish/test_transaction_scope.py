"""`outbox.transaction(conn)`: the outermost transaction of a connection, whose end is reported."""

from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from reading import count
from waiting import eventually

from partbox import Event, Outbox
from partbox.errors import PublishError
from partbox.publish import transaction_outcome

EVENT = Event("OrderPlaced", {"id": 42})
DEFERRED = """
    create table account (id integer);
    create function refuse() returns trigger language plpgsql as $$ begin raise 'refused at commit'; end $$;
    create constraint trigger refusal after insert on account deferrable initially deferred
        for each row execute function refuse();
"""


@pytest.fixture
def ends() -> list[tuple[str, list[Any]]]:
    """How transactions ended, and for which payloads."""
    return []


@pytest.fixture
def outbox(dsn: str, ends: list[tuple[str, list[Any]]]) -> Outbox:
    outbox = Outbox(dsn)
    outbox.after_commit(lambda events: ends.append(("commit", [event.payload for event in events])))
    outbox.after_rollback(lambda events: ends.append(("rollback", [event.payload for event in events])))
    return outbox


def test_the_connection_itself_is_yielded_and_stays_as_it_was(outbox: Outbox, dsn: str, ends: Any) -> None:
    for autocommit in (True, False):
        with psycopg.connect(dsn, autocommit=autocommit, row_factory=dict_row) as app:
            with outbox.transaction(app) as tx:
                assert tx is app
                assert tx.execute("select 1 as one").fetchone() == {"one": 1}
                outbox.publish(tx, EVENT)
                assert ends == []
            assert app.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            assert (app.autocommit, app.row_factory, app.closed) == (autocommit, dict_row, False)
            assert ends == [("commit", [{"id": 42}])]
            assert transaction_outcome.find_transaction_end(app) is None
        ends.clear()


def test_an_exception_rolls_back_and_is_reported_as_a_rollback(
    outbox: Outbox, conn: psycopg.Connection[Any], ends: Any
) -> None:
    def fail() -> None:
        with outbox.transaction(conn) as tx:
            outbox.publish(tx, EVENT)
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert (ends, count(conn)) == ([("rollback", [{"id": 42}])], 0)


def test_raising_psycopg_rollback_is_reported_as_a_rollback(
    outbox: Outbox, conn: psycopg.Connection[Any], ends: Any
) -> None:
    with outbox.transaction(conn) as tx:
        outbox.publish(tx, EVENT)
        raise psycopg.Rollback
    assert (ends, count(conn)) == ([("rollback", [{"id": 42}])], 0)


def test_hooks_are_called_when_the_commit_has_succeeded(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    seen: list[int] = []
    outbox.after_commit(lambda events: seen.append(count(conn)))
    with psycopg.connect(dsn) as app, outbox.transaction(app) as tx:
        outbox.publish(tx, EVENT)
    assert seen == [1]


@pytest.mark.parametrize("pipelined", [False, True])
def test_a_commit_that_fails_is_reported_as_a_rollback(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any], ends: Any, pipelined: bool
) -> None:
    conn.execute(DEFERRED)

    def commit(app: psycopg.Connection[Any]) -> None:
        with outbox.transaction(app) as tx:
            outbox.publish(tx, EVENT)
            tx.execute("insert into account values (1)")

    def run(app: psycopg.Connection[Any]) -> None:
        if pipelined:
            with app.pipeline():
                commit(app)
        else:
            commit(app)

    with psycopg.connect(dsn, autocommit=True) as app:
        with pytest.raises(psycopg.errors.RaiseException, match="refused at commit"):
            run(app)
        assert (ends, count(app)) == ([("rollback", [{"id": 42}])], 0)


def test_a_block_that_catches_the_error_of_its_failed_transaction_raises_and_is_rolled_back(
    outbox: Outbox, conn: psycopg.Connection[Any], ends: Any
) -> None:
    def publish() -> None:
        with outbox.transaction(conn) as tx:
            outbox.publish(tx, EVENT)
            with pytest.raises(psycopg.errors.DivisionByZero):
                tx.execute("select 1 / 0")

    with pytest.raises(PublishError, match=r"^the transaction was rolled back, with everything in it"):
        publish()
    assert (ends, count(conn)) == ([("rollback", [{"id": 42}])], 0)
    with outbox.transaction(conn) as tx:  # the connection is as it was
        outbox.publish(tx, EVENT)
    assert (ends[1:], count(conn)) == ([("commit", [{"id": 42}])], 1)


async def test_an_asynchronous_block_that_catches_the_error_of_its_failed_transaction_raises_too(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any], ends: Any
) -> None:
    async def publish() -> None:
        async with outbox.transaction() as tx:
            await outbox.publish_async(tx, EVENT)
            with pytest.raises(psycopg.errors.DivisionByZero):
                await tx.execute("select 1 / 0")

    with pytest.raises(PublishError, match=r"^the transaction was rolled back, with everything in it"):
        await publish()
    assert (ends, count(conn)) == ([("rollback", [{"id": 42}])], 0)


def test_a_lost_connection_is_reported_as_a_rollback(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any], ends: Any
) -> None:
    def publish(app: psycopg.Connection[Any]) -> None:
        with outbox.transaction(app) as tx:
            outbox.publish(tx, EVENT)
            conn.execute("select pg_terminate_backend(%s)", [tx.info.backend_pid])
            tx.execute("select 1")

    with pytest.raises(psycopg.OperationalError), psycopg.connect(dsn) as app:
        publish(app)
    assert (ends, count(conn)) == ([("rollback", [{"id": 42}])], 0)


def test_a_block_in_which_the_error_of_a_lost_connection_was_caught_raises(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any], ends: Any
) -> None:
    def publish(app: psycopg.Connection[Any]) -> None:
        with outbox.transaction(app) as tx:
            outbox.publish(tx, EVENT)
            with tx.transaction(force_rollback=True):  # psycopg only warns
                conn.execute("select pg_terminate_backend(%s, 5000)", [tx.info.backend_pid])

    with pytest.raises(psycopg.OperationalError, match="lost inside the transaction"), psycopg.connect(dsn) as app:
        publish(app)
    assert (ends, count(conn)) == ([("rollback", [{"id": 42}])], 0)


async def test_an_asynchronous_block_in_which_the_error_of_a_lost_connection_was_caught_raises_too(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any], ends: Any
) -> None:
    async def publish(app: psycopg.AsyncConnection[Any]) -> None:
        async with outbox.transaction(app) as tx:
            await outbox.publish_async(tx, EVENT)
            async with tx.transaction(force_rollback=True):
                conn.execute("select pg_terminate_backend(%s, 5000)", [tx.info.backend_pid])

    async with await psycopg.AsyncConnection.connect(dsn) as app:
        with pytest.raises(psycopg.OperationalError, match="lost inside the transaction"):
            await publish(app)
    assert (ends, count(conn)) == ([("rollback", [{"id": 42}])], 0)


def test_batches_taken_back_by_savepoints_of_any_kind_are_not_reported_as_committed(
    outbox: Outbox, conn: psycopg.Connection[Any], ends: Any
) -> None:
    with outbox.transaction(conn) as tx:
        outbox.publish(tx, "T", "kept 1")
        with tx.transaction():
            outbox.publish(tx, "T", "kept in a released savepoint")
            with tx.transaction(force_rollback=True):
                outbox.publish(tx, "T", "lost by psycopg")
                with tx.transaction():
                    outbox.publish_many(tx, [Event("T", "lost in a released one inside"), Event("T", "and this")])
        tx.execute("savepoint plain")
        outbox.publish(tx, "T", "lost by SQL")
        tx.execute("rollback to savepoint plain")
        outbox.publish(tx, "T", "kept 2")
        tx.execute("savepoint plain")
        outbox.publish(tx, "T", "lost by an error")
        with pytest.raises(psycopg.errors.DivisionByZero):
            tx.execute("select 1 / 0")
        tx.execute("rollback to savepoint plain")
    assert ends == [
        ("commit", ["kept 1"]),
        ("commit", ["kept in a released savepoint"]),
        ("rollback", ["lost by psycopg"]),
        ("rollback", ["lost in a released one inside", "and this"]),
        ("rollback", ["lost by SQL"]),
        ("commit", ["kept 2"]),
        ("rollback", ["lost by an error"]),
    ]
    kept = conn.execute("select payload #>> '{}' from partbox.record order by id").fetchall()
    assert [payload for (payload,) in kept] == ["kept 1", "kept in a released savepoint", "kept 2"]


def test_each_transaction_reports_its_own_batches(outbox: Outbox, conn: psycopg.Connection[Any], ends: Any) -> None:
    for number in range(3):
        with outbox.transaction(conn) as tx:
            outbox.publish(tx, "T", number)
            with tx.transaction(force_rollback=number == 1):
                outbox.publish(tx, "T", -number)
    assert ends == [
        ("commit", [0]), ("commit", [0]), ("commit", [1]), ("rollback", [-1]), ("commit", [2]), ("commit", [-2])
    ]  # fmt: skip


def test_a_second_outbox_reports_on_the_same_transaction(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any], ends: Any
) -> None:
    other = Outbox(dsn)
    other.after_commit(lambda events: ends.append(("other", [event.payload for event in events])))
    with outbox.transaction(conn) as tx:
        other.publish(tx, "T", 1)
        outbox.publish(tx, "T", 2)
    assert ends == [("other", [1]), ("commit", [2])]


def test_a_transaction_that_is_open_already_is_refused(outbox: Outbox, dsn: str) -> None:
    with psycopg.connect(dsn) as app:
        app.execute("select 1")
        with pytest.raises(PublishError, match=r"already open on this connection.* commit or roll back first"):
            outbox.transaction(app).__enter__()
        app.rollback()
        with outbox.transaction(app), pytest.raises(PublishError, match="already open"):
            outbox.transaction(app).__enter__()
        with pytest.raises(psycopg.errors.DivisionByZero):
            app.execute("select 1 / 0")
        with pytest.raises(PublishError, match="the transaction has failed"):
            outbox.transaction(app).__enter__()
        app.rollback()
        with app.pipeline():
            app.execute("select 1")
            with pytest.raises(PublishError, match="already open"):
                outbox.transaction(app).__enter__()
    with pytest.raises(PublishError, match="closed"):
        outbox.transaction(app).__enter__()


async def test_the_wrong_kind_of_block_or_connection_names_the_right_one(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as app:
        with pytest.raises(PublishError, match=r"is asynchronous: use `async with outbox.transaction\(conn\):`"):
            outbox.transaction(app).__enter__()
    with pytest.raises(PublishError, match=r"is synchronous: use `with outbox.transaction\(conn\):`"):
        await outbox.transaction(conn).__aenter__()
    with pytest.raises(PublishError, match=r"psycopg, SQLAlchemy, Django or asyncpg is needed, not a builtins.str"):
        outbox.transaction(dsn).__enter__()  # type: ignore[arg-type]


def test_a_connection_that_the_outbox_opens_reports_its_end_too(
    outbox: Outbox, conn: psycopg.Connection[Any], ends: Any
) -> None:
    with outbox.transaction() as tx:
        outbox.publish(tx, EVENT)
    assert (tx.closed, ends, count(conn)) == (True, [("commit", [{"id": 42}])], 1)


async def test_asynchronous_blocks_report_the_same(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any], ends: Any
) -> None:
    async def fail(app: psycopg.AsyncConnection[Any]) -> None:
        async with outbox.transaction(app) as tx:
            await outbox.publish_async(tx, "T", "lost")
            raise LookupError

    async with outbox.transaction() as own:
        await outbox.publish_async(own, "T", "own")
    async with await psycopg.AsyncConnection.connect(dsn) as app:
        async with outbox.transaction(app) as tx:
            assert tx is app
            await outbox.publish_async(tx, "T", "kept")
            async with tx.transaction(force_rollback=True):
                await outbox.publish_many_async(tx, [Event("T", "taken back")])
        with pytest.raises(LookupError):
            await fail(app)
        async with app.pipeline(), outbox.transaction(app) as tx:
            await outbox.publish_async(tx, "T", "in a pipeline")
        with pytest.raises(PublishError, match=r"outbox.transaction\(conn\)"):
            await outbox.publish_async(app, "T", "outside")
    assert ends == [
        ("commit", ["own"]), ("commit", ["kept"]), ("rollback", ["taken back"]), ("rollback", ["lost"]),
        ("commit", ["in a pipeline"]),
    ]  # fmt: skip
    assert count(conn) == 3


def test_a_commit_wakes_the_running_workers_of_the_outbox_at_once(dsn: str, conn: psycopg.Connection[Any]) -> None:
    outbox = Outbox(dsn, lease=60, poll_idle=15, poll_busy=15)
    seen: list[Any] = []
    outbox.register(lambda event: seen.append(event.payload), "T")
    idle, woken = outbox.worker(), []
    idle.wake = lambda: woken.append("idle")  # type: ignore[method-assign]
    with outbox.worker() as worker:
        eventually(lambda: conn.execute("select count(owner) from partbox.partition").fetchone() == (256,))
        wake = worker.wake
        worker.wake = lambda: (woken.append("running"), wake())  # type: ignore[method-assign,assign,return-value]
        with outbox.transaction(conn) as tx:
            outbox.publish_many(tx, [Event("T", 1), Event("T", 2)])
            outbox.publish(tx, "T", 3, idempotency_key="k")
            assert woken == []
        assert sorted(woken) == ["idle", "running"]  # once per commit
        eventually(lambda: sorted(seen) == [1, 2, 3])
        with outbox.transaction(conn) as tx:
            outbox.publish(tx, "T", 4)
        assert sorted(woken) == ["idle", "idle", "running", "running"]
        woken.clear()
        with outbox.transaction(conn) as tx:
            outbox.publish(tx, "T", 5)
            raise psycopg.Rollback
        with pytest.raises(psycopg.errors.DivisionByZero), outbox.transaction(conn) as tx:
            _publish_and_fail(outbox, tx)
        with outbox.transaction(conn) as tx:
            tx.execute("select 1")
        assert woken == []


def _publish_and_fail(outbox: Outbox, tx: psycopg.Connection[Any]) -> None:
    outbox.publish_many(tx, [Event("T", 6)])
    tx.execute("select 1 / 0")


def test_a_wake_of_a_worker_that_does_not_run_does_nothing(outbox: Outbox) -> None:
    worker = outbox.worker()
    worker.wake()
    worker.stop()
    worker.wake()
