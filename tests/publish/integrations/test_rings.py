"""By whatever library one publishes, a worker that sleeps is rung for; what is rolled back rings nobody."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from full_notification_queue import crowd
from kits import KITS, Kit, opened
from psycopg.pq import TransactionStatus
from roles import cast_of, locks_held

from partbox import Event, Outbox
from partbox.protocol.bell import build_channel_name
from partbox.protocol.hashing import partition_of
from partbox.publish.steps import Insert
from partbox.publish.writing import COPY_FROM_EVENTS

pytestmark = pytest.mark.every_version("a sequence that is not logged, NOTIFY, and what PREPARE refuses")

Conn = psycopg.Connection[Any]
UP = "select setval('partbox.bell', (extract(epoch from clock_timestamp()) * 1000)::bigint + 1000)"
ONE = Event("Placed", 1, aggregate_id="a")
FEW = [Event("Placed", n, aggregate_id="ab"[n % 2]) for n in range(4)]
MANY = [Event("Placed", n, aggregate_id="ab"[n % 2]) for n in range(COPY_FROM_EVENTS)]
A, B = str(partition_of("a")), str(partition_of("b"))
"""The rings for aggregates a and b."""


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


@pytest.fixture
def up(conn: Conn) -> Callable[[], None]:
    """From the call on somebody falls asleep whenever a row is written, once its id is drawn.

    Not once, for a second: a test may take longer on a busy machine.
    """
    raised = UP.removeprefix("select")
    conn.execute(
        f"create function asleep() returns trigger language plpgsql as $$ begin perform {raised}; return new; end $$"
    )

    def up() -> None:
        conn.execute("create trigger asleep before insert on partbox.record for each row execute function asleep()")

    return up


def wake_up(conn: Conn) -> None:
    """Lower the flag."""
    conn.execute("drop trigger asleep on partbox.record")
    conn.execute("select setval('partbox.bell', 1)")


@pytest.fixture
def rung(dsn: str) -> Iterator[Callable[[], list[str]]]:
    """The rings since the last call, in order; waits for no more than what is committed."""
    with psycopg.connect(dsn, autocommit=True) as listening:
        listening.execute(f'listen "{build_channel_name("partbox")}"')

        def heard() -> list[str]:
            listening.execute("select 1")  # notifications of what was committed before come with its answer
            return [each.payload for each in listening.notifies(timeout=0)]

        yield heard


@pytest_asyncio.fixture(params=KITS, ids=lambda kit: kit.name)
async def kit(request: pytest.FixtureRequest, dsn: str, outbox: Outbox) -> AsyncIterator[Kit]:
    async with opened(request.param, dsn, outbox) as kit:
        yield kit


async def test_every_library_rings_as_soon_as_its_transaction_has_committed(
    kit: Kit, up: Callable[[], None], rung: Callable[[], list[str]]
) -> None:
    up()
    async with kit.transaction() as tx:
        await kit.publish(tx, ONE)
        assert rung() == []
    assert rung() == [A]
    for events in (FEW, MANY):
        async with kit.transaction() as tx:
            await kit.publish_many(tx, events)
        assert sorted(rung()) == sorted([A, B])
    async with kit.transaction() as tx:
        await kit.publish(tx, "Placed", 1, aggregate_id="b", idempotency_key="k")
        await kit.publish(tx, "Placed", 1, aggregate_id="a", idempotency_key="k")
    assert rung() == [B], "not for an event whose key was used before"


async def test_every_library_publishes_without_a_ring_where_nobody_sleeps(
    kit: Kit, rung: Callable[[], list[str]]
) -> None:
    async with kit.transaction() as tx:
        await kit.publish(tx, ONE)
        await kit.publish_many(tx, FEW)
        await kit.publish_many(tx, MANY)
    assert rung() == []


@pytest_asyncio.fixture(params=KITS, ids=lambda kit: kit.name)
async def crowded_kit(request: pytest.FixtureRequest, crowded_dsn: str) -> AsyncIterator[Kit]:
    async with opened(request.param, crowded_dsn, Outbox(crowded_dsn)) as kit:
        yield kit


@pytest.fixture(params=[nullcontext, locks_held])
def full(request: pytest.FixtureRequest, crowded_dsn: str) -> Iterator[None]:
    """Nobody can ring, and every lock that a stranger may hold is held, or not."""
    with request.param(crowded_dsn), crowd(crowded_dsn):
        yield


@pytest.mark.thorough
async def test_no_library_fails_for_a_ring_that_cannot_be_sent(crowded_kit: Kit, crowded_dsn: str, full: None) -> None:
    kit, keyed = crowded_kit, {"aggregate_id": "b", "idempotency_key": "k"}
    with psycopg.connect(crowded_dsn, autocommit=True) as conn:
        for events in ([ONE], FEW, MANY):
            conn.execute(UP)
            async with kit.transaction() as tx:
                await kit.publish_many(tx, events)
        for arguments in (keyed, {}):
            conn.execute(UP)
            async with kit.transaction() as tx:
                await kit.publish(tx, "Placed", 1, **arguments)
        assert conn.execute("select count(*) from partbox.record").fetchone() == (1 + len(FEW) + len(MANY) + 2,)


def test_sql_does_not_fail_for_a_ring_that_cannot_be_sent(crowded_dsn: str, full: None) -> None:
    with psycopg.connect(crowded_dsn, autocommit=True) as conn:
        conn.execute(UP)
        conn.execute("select partbox.publish('Placed', '1')")
        assert conn.execute("select partbox.ring(), partbox.ring(3)").fetchone() == (False, False)
        assert conn.execute("select count(*) from partbox.record").fetchone() == (1,)


def test_a_ring_that_is_rolled_back_is_not_remembered(
    outbox: Outbox, conn: Conn, up: Callable[[], None], rung: Callable[[], list[str]]
) -> None:
    up()
    with conn.transaction():
        with conn.transaction(force_rollback=True):
            outbox.publish(conn, ONE)
        outbox.publish(conn, ONE)
    assert rung() == [A]
    with conn.transaction(force_rollback=True):
        outbox.publish(conn, ONE)
    assert rung() == []


def test_a_publisher_that_has_just_heard_that_nobody_sleeps_does_not_ask(
    outbox: Outbox, conn: Conn, up: Callable[[], None], rung: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with conn.transaction():
        outbox.publish(conn, ONE)
    up()
    with conn.transaction():
        outbox.publish(conn, ONE)
        outbox.publish_many(conn, MANY)
    assert rung() == []
    now += 1.0
    with conn.transaction():
        outbox.publish(conn, ONE)
    assert rung() == [A]


def test_the_age_of_an_answer_counts_from_when_the_publisher_asked(
    outbox: Outbox, conn: Conn, up: Callable[[], None], rung: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement that was on its way for a second has heard what was true a second ago."""
    now = 100.0
    run = Insert.run

    def run_slowly(self: Insert, cursor: Any) -> Any:
        nonlocal now
        answer = run(self, cursor)
        now += 1.0
        return answer

    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr(Insert, "run", run_slowly)
    with conn.transaction():
        outbox.publish(conn, ONE)
        up()
        outbox.publish(conn, ONE)
    assert rung() == [A]


def test_an_answer_from_one_database_does_not_count_for_another(
    outbox: Outbox, conn: Conn, fresh_dsn: str, up: Callable[[], None], rung: Callable[[], list[str]]
) -> None:
    up()
    with psycopg.connect(fresh_dsn) as other:
        outbox.publish(other, ONE)
    with conn.transaction():
        outbox.publish(conn, ONE)
    assert rung() == [A]


def test_many_partitions_are_rung_for_at_once(
    outbox: Outbox, conn: Conn, up: Callable[[], None], rung: Callable[[], list[str]]
) -> None:
    up()
    with conn.transaction():
        outbox.publish_many(conn, [Event("Placed", n) for n in range(200)])
    assert rung() == ["*"]


def test_a_pipeline_rings_and_waits_for_no_answer(
    outbox: Outbox, dsn: str, up: Callable[[], None], rung: Callable[[], list[str]]
) -> None:
    with psycopg.connect(dsn) as own:
        up()
        with own.pipeline():
            outbox.publish(own, ONE)
            outbox.publish_many(own, MANY)
            assert own.info.transaction_status in (TransactionStatus.IDLE, TransactionStatus.ACTIVE)
    assert sorted(rung()) == sorted([A, B])


@pytest.mark.parametrize("events", [[ONE], FEW, MANY], ids=["one", "few", "many"])
def test_a_publisher_reads_the_flag_after_the_ids_are_drawn(
    outbox: Outbox, conn: Conn, up: Callable[[], None], rung: Callable[[], list[str]], events: list[Event]
) -> None:
    up()
    with conn.transaction():
        outbox.publish_many(conn, events)
    assert set(rung()) == {A, B} if len(events) > 1 else {A}


def test_sql_rings_too(conn: Conn, up: Callable[[], None], rung: Callable[[], list[str]]) -> None:
    up()
    conn.execute("select partbox.publish('Placed', '1', aggregate_id => 'a')")
    assert rung() == [A]
    asleep = f"with asleep as materialized ({UP})"
    assert conn.execute(f"{asleep} select partbox.ring(), partbox.ring(7) from asleep").fetchone() == (True, True)
    assert rung() == ["*", "7"]
    wake_up(conn)
    conn.execute("select partbox.publish('Placed', '1', aggregate_id => 'a')")
    assert conn.execute("select partbox.ring()").fetchone() == (False,)
    assert rung() == []


@pytest.mark.parametrize("ahead", [-1000, 0, 3_600_000])
def test_a_flag_that_is_over_or_that_a_clock_left_far_ahead_rings_nobody(
    outbox: Outbox, conn: Conn, up: Callable[[], None], rung: Callable[[], list[str]], ahead: int
) -> None:
    conn.execute(f"select setval('partbox.bell', (extract(epoch from clock_timestamp()) * 1000)::bigint + {ahead})")
    with conn.transaction():
        outbox.publish(conn, ONE)
        outbox.publish_many(conn, MANY)
        conn.execute("select partbox.publish('Placed', '1'), partbox.ring()")
    assert rung() == []


def test_an_outbox_whose_bell_is_off_asks_nobody(
    dsn: str, conn: Conn, up: Callable[[], None], rung: Callable[[], list[str]]
) -> None:
    up()
    with conn.transaction():
        silent = Outbox(dsn, bell="off")
        silent.publish(conn, ONE)
        silent.publish(conn, "Placed", 1, aggregate_id="a", idempotency_key="k")
        silent.publish_many(conn, FEW)
        Outbox(dsn, bell=False).publish_many(conn, MANY)
    assert rung() == []


@pytest.mark.parametrize(
    "lacks", ["drop sequence if exists partbox.bell", "revoke all on sequence partbox.bell from {}"]
)
def test_events_are_published_without_the_sequence_of_the_bell_or_the_right_to_read_it(
    dsn: str, conn: Conn, rung: Callable[[], list[str]], lacks: str
) -> None:
    with cast_of(dsn) as cast:
        conn.execute(UP)
        conn.execute(lacks.format(cast.publisher))
        outbox = Outbox(cast.of("publisher"))
        with outbox.transaction() as tx:
            outbox.publish(tx, ONE)
            outbox.publish(tx, "Placed", 1, idempotency_key="k")
            outbox.publish_many(tx, FEW)
            outbox.publish_many(tx, MANY)
            tx.execute("select partbox.publish('Placed', '1'), partbox.ring(1)")
    assert conn.execute("select count(*) from partbox.record").fetchone() == (7 + COPY_FROM_EVENTS,)
    assert rung() == []


def test_a_publisher_may_read_the_flag_and_not_set_it(dsn: str, conn: Conn, up: Callable[[], None]) -> None:
    with cast_of(dsn) as cast, psycopg.connect(cast.of("publisher"), autocommit=True) as own:
        assert own.execute("select pg_sequence_last_value('partbox.bell')").fetchone() == (None,)
        for forbidden in ("setval('partbox.bell', 5)", "nextval('partbox.bell')"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                own.execute(f"select {forbidden}")


def test_a_transaction_that_rang_cannot_be_prepared_and_one_that_did_not_can(
    outbox: Outbox, dsn: str, conn: Conn, up: Callable[[], None]
) -> None:
    """Therefore workers do not raise the flag where transactions may be prepared."""
    with psycopg.connect(dsn, autocommit=True) as own:
        up()
        own.execute("begin")
        outbox.publish(own, ONE)
        with pytest.raises(psycopg.NotSupportedError, match="NOTIFY"):
            own.execute("prepare transaction 'rang'")
        own.execute("rollback")
        wake_up(conn)
        own.execute("begin")
        outbox.publish(own, ONE)
        own.execute("prepare transaction 'rang not'")
        own.execute("rollback prepared 'rang not'")
