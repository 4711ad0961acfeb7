"""Through PgBouncer in transaction mode: each statement or transaction may meet another session of the server."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from pooled import PgBouncer, needed, publishing_patiently
from psycopg import sql
from roles import Cast, cast_of
from servers import new_folder
from waiting import eventually

from partbox import Event, Outbox
from partbox.cli import main
from partbox.embedded import server_user
from partbox.protocol.hashing import partition_of
from partbox.worker.poller.listener import Listener

pytestmark = needed

FOR_POOLED_WORKERS = (
    "alter role {} set jit = off",
    "alter role {} set statement_timeout = '6s'",
    "alter role {} set idle_in_transaction_session_timeout = '3s'",
    "alter role {} set default_transaction_isolation = 'read committed'",
)


@pytest.fixture
def cast(dsn: str) -> Iterator[Cast]:
    with cast_of(dsn) as cast:
        yield cast


@pytest.fixture
def new_pgbouncer(cast: Cast) -> Iterator[Callable[..., PgBouncer]]:
    made: list[PgBouncer] = []
    with new_folder() as folder:

        def new(**options: Any) -> PgBouncer:
            server_user.make_open_folder(folder)
            made.append(PgBouncer(cast.dsn, folder, ["postgres", cast.publisher, cast.worker], **options))
            made[-1].start()
            return made[-1]

        try:
            yield new
        finally:
            for each in made:
                each.stop()


@pytest.fixture
def unprepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application's own connections prepare nothing, as behind every transaction pooler."""
    monkeypatch.setattr(psycopg, "connect", partial(psycopg.connect, prepare_threshold=None))


def events(count: int, **fields: Any) -> list[Event]:
    return [Event("Placed", n, aggregate_type="Order", aggregate_id=str(n), **fields) for n in range(count)]


def publish_in_all_ways(outbox: Outbox, conn: psycopg.Connection[Any], mark: str) -> int:
    """Publish by every API, each statement often enough for a driver to prepare it; return the number of events."""
    for tx in (outbox.transaction(), outbox.transaction(conn)):
        with tx as own:
            for number in range(8):
                outbox.publish(own, "Placed", number)
                assert outbox.publish(own, "Placed", 1, idempotency_key=f"{mark}{id(tx)}{number}")
            outbox.publish_many(own, events(7))
            outbox.publish_many(own, events(30))
            outbox.publish_many(own, events(30, deliver_after=timedelta(microseconds=1)))
            outbox.publish_many(own, events(7, deliver_after=timedelta(microseconds=1)))
            with own.transaction(force_rollback=True):
                outbox.publish_many(own, events(3))
            for number in range(8):
                own.execute("select partbox.publish('Placed', '1', 'Order', %s::text)", [str(number)])
    return 2 * (16 + 7 + 30 + 30 + 7 + 8)


async def test_every_way_to_publish_and_an_embedded_worker_work_through_pgbouncer(new_pgbouncer, cast, conn):
    """One session of the server for all of them: what one leaves in it the next one meets."""
    pgbouncer = new_pgbouncer(size=1)
    told: list[Event] = []
    outboxes = [Outbox(pgbouncer.dsn(cast.publisher), pooler=True) for _ in range(2)]
    for outbox in outboxes:
        outbox.after_commit(told.extend)
    published = 0
    for turn in range(3):
        for outbox in outboxes:
            with psycopg.connect(outbox.dsn, autocommit=True, prepare_threshold=None) as own:
                published += publish_in_all_ways(outbox, own, f"{turn}{id(outbox)}")
            async with outbox.transaction() as tx:
                for number in range(8):
                    await outbox.publish_async(tx, "Placed", number)
                await outbox.publish_many_async(tx, events(30))
            published += 38
    assert len(told) == published - 3 * 2 * 2 * 8  # nobody is told of those from SQL
    assert conn.execute("select count(*) from partbox.record").fetchone() == (published,)

    worker, seen = Outbox(pgbouncer.dsn(cast.worker), pooler=True, max_attempts=1), []
    worker.on("Placed")(lambda event: seen.append(event.id))
    worker.drain()
    assert len(seen) == len(set(seen)) == published


def test_a_worker_that_listens_past_pgbouncer_is_woken_by_publishers_behind_it(new_pgbouncer, cast, conn, monkeypatch):
    heard, hear = [], Listener.handle_notification
    monkeypatch.setattr(
        Listener, "handle_notification", lambda self, payload: (heard.append(payload), hear(self, payload))
    )
    pgbouncer, seen = new_pgbouncer(), []
    through = {"pooler": True, "bell": "on"}
    worker = Outbox(pgbouncer.dsn(cast.worker), listen_dsn=cast.of("worker"), **through)
    worker.on("Placed")(lambda event: seen.append(event.aggregate_id))
    publisher = Outbox(pgbouncer.dsn(cast.publisher), **through)
    up = "select pg_sequence_last_value('partbox.bell') > extract(epoch from clock_timestamp()) * 1000"
    with worker.worker():
        for key in "abc":
            eventually(lambda: conn.execute(up).fetchone() == (True,))
            with publisher.transaction() as tx:
                publisher.publish(tx, "Placed", 1, aggregate_id=key)
            eventually(lambda key=key: key in seen)
    assert {str(partition_of(key)) for key in "abc"} & {*heard}


def test_a_worker_whose_listener_pgbouncer_refuses_stays_awake(new_pgbouncer, cast, conn, caplog):
    pgbouncer, seen = new_pgbouncer(), []
    through = pgbouncer.dsn(cast.worker)
    worker = Outbox(through, pooler=True, bell="on", listen_dsn=through)
    worker.on("Placed")(lambda event: seen.append(event.payload))
    publisher = Outbox(pgbouncer.dsn(cast.publisher), pooler=True)
    with worker.worker():
        for number in range(5):
            with publisher.transaction() as tx:
                publisher.publish(tx, "Placed", number)
            eventually(lambda number=number: number in seen)
        eventually(lambda: "notifications cannot wake this worker for now" in caplog.text)
    assert "refuses the options of a session" in caplog.text
    assert conn.execute("select pg_sequence_last_value('partbox.bell')").fetchone() == (None,)


def test_users_who_have_not_configured_the_pooler_are_told_how_to(new_pgbouncer, cast, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pooled_shop.py").write_text("from partbox import Outbox\noutbox = Outbox()\noutbox.on('A')(print)\n")
    monkeypatch.syspath_prepend(tmp_path)
    through = new_pgbouncer().dsn(cast.worker)

    def ran(*typed: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as exit:
            main([*typed, "--dsn", through])
        return exit.value.code, capsys.readouterr().err

    for command in (["status"], ["dead", "list"], ["doctor"], ["worker", "pooled_shop:outbox", "--processes", "1"]):
        code, said = ran(*command)
        assert (code, said.count("\n")) == (1, 1)
        assert said.startswith("partbox: cannot use the database: a connection pooler, such as PgBouncer, refuses")
        assert "set PARTBOX_POOLER=1 or give --pooler" in said
    assert ran("status", "--pooler") == (0, "")
    outbox = Outbox(through)
    outbox.on("A")(print)
    with pytest.raises(psycopg.OperationalError, match="PARTBOX_POOLER=1"):
        outbox.drain()


@pytest.mark.thorough
def test_a_cluster_behind_pgbouncer_survives_kills_a_join_and_a_restart_of_pgbouncer(
    new_pgbouncer, cast, conn, new_cluster, unprepared
):
    for statement in FOR_POOLED_WORKERS:
        conn.execute(sql.SQL(statement).format(sql.Identifier(cast.worker)))
    pgbouncer, cluster = new_pgbouncer(), new_cluster(cast.dsn)
    cluster.ledger.dsn = pgbouncer.dsn()
    behind = {"dsn": pgbouncer.dsn(cast.worker), "pooler": True, "lease": 6, "heartbeat": 0.5}
    first = cluster.node("first", processes=2, **behind)
    cluster.balanced(2)

    def more(count: int = 60) -> None:
        reached = len(cluster.journal.ended())
        eventually(lambda: len(cluster.journal.ended()) > reached + count, interval=0.05)

    killed: set[int] = set()
    with publishing_patiently(cluster.ledger):
        more()
        killed.add(next(iter(cluster.owners.instances("first").values())))
        cluster.kill(min(killed))
        more()
        second = cluster.node("second", processes=1, **behind)
        cluster.balanced(3)
        more()
        pgbouncer.stop()
        eventually(
            lambda: "the connection was lost" in first.log and "the connection was lost" in second.log, interval=0.05
        )
        pgbouncer.start()
        more()
    cluster.balanced(3)
    cluster.delivered()
    assert second.stop() == 0
    assert first.stop() == 0

    verdict = cluster.verdict()
    assert verdict.wrong() == {}
    of_killed = {one.event for one in cluster.journal.deliveries(lambda one: one.pid in killed)}
    assert {repeat.event for repeat in verdict.repeats} <= of_killed
    assert "permission denied" not in first.log + second.log
    assert "prepared statement" not in first.log + second.log
    assert [line for line in pgbouncer.log.splitlines() if "unsupported startup parameter" in line] == []
