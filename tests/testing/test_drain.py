"""Draining by hand: what is due, in order, by the code of every worker; and what becomes of each event."""

import asyncio
from typing import Any

import psycopg
import pytest

from partbox import DownstreamUnavailable, Event, Outbox, PartboxError, RegistrationError, SchemaError
from partbox.events import DeliveredEvent
from partbox.testing import Kit


def of(drained: list[Any]) -> list[tuple[str, str, int]]:
    return [(each.event.event_type, each.state, each.attempts) for each in drained]


def test_events_of_all_aggregates_and_kinds_are_handed_over_in_the_order_of_the_log(kit, shop):
    with shop.outbox.transaction() as conn:
        for number in range(24):
            kind = ("Noted", "Awaited", "Effected")[number % 3]
            shop.outbox.publish(conn, kind, number, aggregate_id=str(number % 5))
    drained = kit.drain()
    assert shop.seen == [*range(24)]
    assert [each.event.id for each in drained] == sorted(each.event.id for each in drained)
    assert drained.assert_done() is drained
    assert kit.drain() == []


def test_a_drain_reports_every_kind_of_outcome(kit):
    for kind, payload in (("Noted", 1), ("Failing", 2), ("Later", 3), ("Hopeless", 4), ("Harmless", 5), ("Unknown", 6)):
        kit.publish(kind, payload)
    drained = kit.drain()
    assert of(drained) == [
        ("Noted", "done", 0),
        ("Failing", "retrying", 1),
        ("Later", "deferred", 0),
        ("Hopeless", "dead", 1),
        ("Harmless", "ignored", 0),
        ("Unknown", "dead", 0),
    ]
    noted, failing, later, hopeless, harmless, unknown = drained
    assert (noted.due, noted.error, noted.reason) == (None, None, None)
    assert (failing.due, failing.reason) == (60, "ValueError: no 2")
    assert isinstance(failing.error, ValueError)
    assert later.due == 0
    assert (hopeless.reason, hopeless.error) == ("never", None)
    assert isinstance(harmless.error, LookupError)
    assert "no handler" in unknown.reason
    assert noted.handler.endswith("noted")


def test_an_event_behind_a_failed_one_of_its_aggregate_is_held_and_runs_in_order_later(kit, shop):
    kit.publish("Failing", 1, aggregate_id="7")
    kit.publish("Noted", 2, aggregate_id="7")
    kit.publish("Noted", 3, aggregate_id="8")
    drained = kit.drain()
    assert of(drained) == [("Failing", "retrying", 1), ("Noted", "done", 0), ("Noted", "held", 0)]
    assert drained[-1].handler is None
    for _ in range(2):
        kit.advance(60)
        drained = kit.drain()
    assert of(drained) == [("Failing", "dead", 3), ("Noted", "done", 0)]
    assert shop.seen == [1, 3, 1, 1, 2]


@pytest.mark.parametrize("kind", ["Later", "SoonAgain"])
def test_an_event_that_is_due_again_at_once_waits_for_the_next_drain(kit, shop, kind):
    kit.publish(kind, 1, aggregate_id="7")
    for drain in range(1, 4):
        kit.drain()
        assert shop.seen == [1] * drain


def test_a_retry_that_does_not_block_lets_later_events_of_its_aggregate_go_on(kit, shop):
    @shop.outbox.on("Loose", on_failure="continue")
    def loose(event: DeliveredEvent) -> None:
        shop.note(event)
        kit.publish("Noted", "behind", aggregate_id="7")
        raise DownstreamUnavailable("down") if event.attempt == 1 else ValueError("no")

    kit.publish("Loose", "loose", aggregate_id="7")
    assert [each.event.event_type for each in kit.drain()] == ["Loose", "Noted"]
    kit.advance("1h")
    assert [each.event.event_type for each in kit.drain()] == ["Loose", "Noted"]
    assert shop.seen == ["loose", "behind"] * 2


def test_only_advancing_the_time_makes_delayed_events_and_retries_due(kit, shop):
    kit.publish("Noted", 1, deliver_after=3_600)
    kit.publish("Failing", 2)
    assert of(kit.drain()) == [("Failing", "retrying", 1)]
    kit.publish("Noted", 3, deliver_after=3_600)
    kit.advance(59)
    assert kit.drain() == []
    kit.advance(2)
    assert of(kit.drain()) == [("Failing", "retrying", 2)]
    kit.advance("1h")
    assert of(kit.drain()) == [("Noted", "done", 0), ("Failing", "dead", 3), ("Noted", "done", 0)]


def test_events_that_handlers_publish_are_delivered_in_the_same_drain(kit, shop):
    kit.publish("Chained", 1, aggregate_id="7")
    kit.publish("Chained", 2, aggregate_id="8")
    kit.drain().assert_done()
    assert shop.seen == [1, 2]


def test_a_drain_ends_though_a_handler_publishes_events_that_it_handles_itself(kit, shop, monkeypatch):
    monkeypatch.setattr("partbox.testing.drain.MOST", 20)

    @shop.outbox.on("Endless")
    def endless(event: DeliveredEvent) -> None:
        kit.publish("Endless", 1)

    kit.publish("Endless", 1)
    with pytest.raises(PartboxError, match="has delivered 20 events and more come: a handler publishes them"):
        kit.drain()
    assert owners(kit) == 0


def test_lists_are_handed_over_as_lists(kit, shop):
    with shop.outbox.transaction() as conn:
        shop.outbox.publish_many(conn, [Event("Listed", n, aggregate_id=str(n % 2)) for n in range(5)])
    kit.drain().assert_done()
    assert [sorted(each) for each in shop.seen] == [[0, 1, 2, 3, 4]]


def test_a_transactional_handler_takes_effect_and_fails_as_in_production(kit, shop, conn):
    for number in (12, 13, 14):
        kit.publish("Effected", number, aggregate_id=str(number))
    assert of(kit.drain()) == [("Effected", "done", 0), ("Effected", "retrying", 1), ("Effected", "done", 0)]
    assert conn.execute("select payload::text from effect order by 1").fetchall() == [("12",), ("14",)]


def test_a_deferred_constraint_that_fails_at_the_commit_is_the_events_error(kit, shop, conn):
    conn.execute("create table parent (id int primary key)")
    conn.execute("create table child (id int references parent deferrable initially deferred)")

    @shop.outbox.on("Constrained", transactional=True)
    def constrained(event: DeliveredEvent, conn: Any) -> None:
        conn.execute("insert into child values (%s)", [event.payload])

    kit.publish("Constrained", 1)
    kit.publish("Noted", 2)
    drained = kit.drain()
    assert sorted(of(drained)) == [("Constrained", "retrying", 1), ("Noted", "done", 0)]
    assert "ForeignKeyViolation" in drained.of("Constrained")[0].reason


def test_the_dead_letter_hook_is_called_in_the_same_drain(kit, shop):
    letters = []
    shop.outbox.on_dead_letter(lambda event, error: letters.append((event.payload, error)))
    kit.publish("Hopeless", 4)
    kit.drain()
    assert letters == [(4, "never")]


def test_interceptors_and_observers_of_the_application_are_active_in_a_drain(kit, shop):
    class Around:
        def before(self, event: DeliveredEvent) -> None:
            shop.seen.append("before")

        def after(self, event: DeliveredEvent, outcome: object, error: BaseException | None) -> None:
            shop.seen.append("after")

    shop.outbox.intercept(Around())
    kit.publish("Noted", 1)
    kit.drain()
    assert shop.seen == ["before", 1, "after"]


def test_a_circuit_opens_within_a_drain_and_the_next_one_begins_anew(kit, shop):
    @shop.outbox.on("Called")
    def called(event: DeliveredEvent) -> None:
        shop.note(event)
        if len(shop.seen) == 1:
            raise DownstreamUnavailable("down")

    kit.publish("Called", 1, aggregate_id="1")
    kit.publish("Called", 2, aggregate_id="2")
    assert [each.state for each in kit.drain()] == ["deferred", "deferred"]
    kit.advance("1h")
    kit.drain().assert_done()
    assert shop.seen == [1, 1, 2]


def test_another_subscription_is_drained_by_its_name(kit, shop):
    shop.outbox.on("Noted", subscription="audit")(lambda event: shop.seen.append("audit"))
    shop.outbox.subscriptions.create("audit")
    kit.publish("Noted", 1)
    kit.drain("audit").assert_done()
    assert shop.seen == ["audit"]
    kit.drain().assert_done()
    assert shop.seen == ["audit", 1]


def test_a_drain_delivers_no_event_of_a_paused_subscription_and_no_uncommitted_one(kit, shop, dsn):
    with psycopg.connect(dsn) as open_one:
        shop.outbox.publish(open_one, "Noted", 1)
        assert kit.drain() == []
        open_one.commit()
    shop.outbox.subscriptions.pause("default")
    assert kit.drain() == []
    shop.outbox.subscriptions.resume("default")
    kit.drain().assert_done()


def test_a_subscription_that_has_no_handler_or_does_not_exist_is_refused(kit, shop):
    with pytest.raises(RegistrationError, match="subscription 'audit' has no handler"):
        kit.drain("audit")
    shop.outbox.on("Noted", subscription="audit")(print)
    with pytest.raises(SchemaError, match=r"subscription 'audit' does not exist.*there is 'default'"):
        kit.drain("audit")
    assert owners(kit) == 0


def test_beside_a_worker_a_drain_is_refused(kit, shop):
    with shop.outbox.worker(), pytest.raises(PartboxError, match=r"a worker delivers .* already .*: stop it first"):
        kit.drain()
    kit.publish("Noted", 1)
    kit.drain().assert_done()


def test_events_of_a_dead_worker_are_delivered_when_its_lease_is_over(kit, shop, conn):
    register = """insert into partbox.instance (subscription, node, hostname, pid, version, lease)
                  values ('default', 'gone', '', 1, '', %s * interval '1 s') returning instance_id"""
    ((dead,),) = conn.execute(register, [3_600]).fetchall()
    conn.execute("update partbox.partition set owner = %s", [dead])
    kit.publish("Noted", 1)
    with pytest.raises(PartboxError, match=r"a worker delivers .* already \(node 'gone'\)"):
        kit.drain()
    conn.execute("update partbox.instance set lease = '0 s'")
    kit.drain().assert_done()
    assert owners(kit) == 0


def test_an_application_with_partbox_disabled_is_drained_all_the_same(dsn, shop):
    outbox = Outbox(dsn, enabled=False)
    outbox.on("Noted")(shop.note)
    with Kit(outbox) as kit:
        kit.publish("Noted", 1)
        kit.drain().assert_done()


@pytest.mark.parametrize(
    "end", [KeyboardInterrupt(), pytest.fail.Exception("enough"), pytest.skip.Exception("not now")]
)
def test_an_exception_that_ends_the_test_passes_through_a_drain_and_leaves_nothing_owned(kit, shop, end):
    @shop.outbox.on("Ending")
    def ending(event: DeliveredEvent) -> None:
        raise end

    kit.publish("Ending", 1)
    kit.publish("Noted", 2)
    with pytest.raises(type(end)):
        kit.drain()
    assert shop.seen == []
    assert owners(kit) == 0
    kit.drain().assert_done()
    assert shop.seen == [2]


def test_a_system_exit_within_a_handler_is_an_error_of_its_event(kit, shop):
    shop.outbox.on("Leaving")(lambda event: exit(3))
    kit.publish("Leaving", 1)
    (left,) = kit.drain()
    assert (left.state, type(left.error)) == ("retrying", SystemExit)


def test_a_drain_leaves_no_instance_and_everything_saved(kit, conn):
    kit.publish("Noted", 1, aggregate_id="7")
    kit.publish("Failing", 1, aggregate_id="8")
    kit.drain()
    assert owners(kit) == 0
    assert conn.execute("select status, count(*) from partbox.record_status group by 1 order by 1").fetchall() == [
        ("done", 1),
        ("retrying", 1),
    ]


def test_a_lost_connection_is_an_error_and_the_next_drain_works(kit, shop, conn):
    cut = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'partbox testing'"
    kit.publish("Noted", 1)
    conn.execute(cut)
    kit.drain().assert_done()

    @shop.outbox.on("Cutting")
    def cutting(event: DeliveredEvent) -> None:
        shop.note(event)
        if shop.seen.count(2) == 1:
            conn.execute(cut)

    kit.publish("Cutting", 2)
    with pytest.raises(psycopg.OperationalError):
        kit.drain()
    assert owners(kit) == 0
    kit.drain().assert_done()
    assert shop.seen == [1, 2, 2]


async def test_a_drain_in_an_event_loop_runs_async_handlers_in_it_and_others_in_a_thread(kit, shop):
    loop = asyncio.get_running_loop()

    @shop.outbox.on("Where")
    async def where(event: DeliveredEvent) -> None:
        await asyncio.sleep(0)
        shop.seen.append(asyncio.get_running_loop() is loop)

    shop.outbox.on("Elsewhere")(lambda event: shop.seen.append(asyncio.run(asyncio.sleep(0, "elsewhere"))))
    kit.publish("Where", 1)
    kit.publish("Elsewhere", 2)
    with pytest.raises(PartboxError, match=r"use `await kit.drain_async\(\)`"):
        kit.drain()
    (await kit.drain_async()).assert_done()
    assert shop.seen == [True, "elsewhere"]


def test_the_event_loop_of_async_handlers_is_the_same_in_each_drain_of_a_test(kit, shop):
    @shop.outbox.on("Where")
    async def where(event: DeliveredEvent) -> None:
        shop.seen.append(asyncio.get_running_loop())

    for _ in range(2):
        kit.publish("Where", 1)
        kit.drain().assert_done()
    assert shop.seen[0] is shop.seen[1]


def test_an_async_handler_beyond_its_timeout_is_cancelled(kit, shop):
    @shop.outbox.on("Slow", timeout=0.01)
    async def slow(event: DeliveredEvent) -> None:
        await asyncio.Event().wait()

    kit.publish("Slow", 1)
    (settled,) = kit.drain()
    assert (settled.state, type(settled.error)) == ("retrying", TimeoutError)


def test_the_message_of_assert_done_names_each_unfinished_event_and_the_first_error(kit):
    with pytest.raises(AssertionError, match="nothing was due: are the published events committed"):
        kit.drain().assert_done()
    kit.publish("Noted", 1, aggregate_id="7")
    kit.publish("Failing", 2, aggregate_type="Order", aggregate_id="8")
    with pytest.raises(AssertionError) as failed:
        kit.drain().assert_done()
    first, *lines = str(failed.value).splitlines()
    assert first == "not all is done:"
    assert "Noted of __GLOBAL__/7 (id" in lines[0]
    assert lines[0].endswith("noted: done")
    assert "Failing of Order/8" in lines[1]
    assert lines[1].endswith("failing: retrying, due in 60 s, 1 attempt: ValueError: no 2")
    assert isinstance(failed.value.__cause__, ValueError)


def owners(kit: Kit) -> int:
    """Partitions that somebody owns, or that are assigned to somebody, and instances."""
    with psycopg.connect(kit.dsn) as conn:
        found = "select count(owner) + count(assignee) + (select count(*) from partbox.instance) from partbox.partition"
        ((count,),) = conn.execute(found).fetchall()
    return int(count)


def test_an_event_held_behind_a_record_that_was_deleted_is_due(kit, shop, conn):
    kit.publish("Failing", 1, aggregate_id="7")
    kit.publish("Noted", 2, aggregate_id="7")
    kit.drain()
    conn.execute("delete from partbox.parked where state = 'retrying'")
    assert of(kit.drain()) == [("Noted", "done", 0)]
