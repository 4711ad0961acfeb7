"""Hooks around a publish: before, after, when the transaction has committed, when it was rolled back."""

from dataclasses import replace
from typing import Any

import psycopg
import pytest
from reading import count, delivered

from partbox import Event, Outbox
from partbox.errors import PublishError, RegistrationError

EVENT = Event("OrderPlaced", {"id": 42}, aggregate_id="42")
MANY = [Event("T", n) for n in range(20)]


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


class Heard:
    """Keeps what hooks were told: the moment and the payloads of the batch."""

    def __init__(self, outbox: Outbox, *moments: str) -> None:
        self.calls: list[tuple[str, list[Any]]] = []
        for moment in moments or ("before_publish", "after_publish", "after_commit", "after_rollback"):
            getattr(outbox, moment)(self.hook(moment))

    def hook(self, moment: str) -> Any:
        def hear(events: list[Event]) -> None:
            self.calls.append((moment, [event.payload for event in events]))

        return hear


def test_hooks_are_called_once_per_batch_in_the_order_of_the_moments(
    outbox: Outbox, conn: psycopg.Connection[Any]
) -> None:
    heard = Heard(outbox)
    with outbox.transaction(conn) as tx:
        outbox.publish(tx, EVENT)
        outbox.publish_many(tx, MANY)
        payloads = [*range(20)]
        assert heard.calls == [
            ("before_publish", [{"id": 42}]), ("after_publish", [{"id": 42}]),
            ("before_publish", payloads), ("after_publish", payloads),
        ]  # fmt: skip
    assert heard.calls[4:] == [("after_commit", [{"id": 42}]), ("after_commit", payloads)]
    assert count(conn) == 21


def test_hooks_of_one_moment_are_called_in_the_order_of_their_registration(
    outbox: Outbox, conn: psycopg.Connection[Any]
) -> None:
    seen: list[str] = []

    @outbox.before_publish
    def first(events: list[Event]) -> list[Event]:
        seen.append("first")
        return [replace(event, headers={"by": "first"}) for event in events]

    @outbox.before_publish
    def second(events: list[Event]) -> None:
        seen.append(f"second after {events[0].headers['by']}")

    assert outbox.after_publish(lambda events: seen.append("third")) is not None  # a plain call
    outbox.after_publish(lambda events: seen.append("fourth"))
    with conn.transaction():
        assert outbox.publish(conn, EVENT) == EVENT.event_id
    assert seen == ["first", "second after first", "third", "fourth"]
    assert [event.headers for event in delivered(conn)] == [{"by": "first"}]
    assert first.__name__ == "first"


def test_a_hook_may_change_the_list_in_place_or_return_another(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    outbox.before_publish(lambda events: events.append(Event("Audited", None)))
    outbox.before_publish(lambda events: tuple(events[::-1]))
    given = [Event("A", 1), Event("B", 2)]
    with conn.transaction():
        ids = outbox.publish_many(conn, given)
        assert outbox.publish(conn, EVENT) == EVENT.event_id  # its own, though another comes first
    records = delivered(conn)
    assert [record.event_type for record in records] == ["Audited", "B", "A", "Audited", "OrderPlaced"]
    assert ids == [record.event_id for record in records[:3]]
    assert len(given) == 2


def test_an_event_put_in_the_place_of_the_published_one_gives_its_id(
    outbox: Outbox, conn: psycopg.Connection[Any]
) -> None:
    other = Event("Other", None)
    outbox.before_publish(lambda events: [other])
    with conn.transaction():
        assert outbox.publish(conn, EVENT) == other.event_id


@pytest.mark.parametrize("suppress", [lambda events: [], lambda events: events.clear()])
def test_an_empty_list_from_a_hook_suppresses_the_batch_and_calls_no_later_hook(
    outbox: Outbox, conn: psycopg.Connection[Any], suppress: Any
) -> None:
    outbox.before_publish(suppress)
    heard = Heard(outbox)
    with outbox.transaction(conn) as tx:
        assert outbox.publish(tx, EVENT) is None
        assert outbox.publish_many(tx, MANY) == []
    assert (heard.calls, count(conn)) == ([], 0)


def test_an_empty_list_of_events_calls_no_hook(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    heard = Heard(outbox)
    with outbox.transaction(conn) as tx:
        assert outbox.publish_many(tx, []) == []
    assert heard.calls == []


def test_an_error_in_a_before_publish_hook_aborts_with_nothing_written(
    outbox: Outbox, conn: psycopg.Connection[Any]
) -> None:
    @outbox.before_publish
    def refuse(events: list[Event]) -> None:
        raise LookupError("not today")

    heard = Heard(outbox)
    with outbox.transaction(conn) as tx:
        for publish in (lambda: outbox.publish(tx, EVENT), lambda: outbox.publish_many(tx, MANY)):
            with pytest.raises(LookupError, match="not today"):
                publish()
        assert tx.execute("select pg_current_xact_id_if_assigned()").fetchone() == (None,)
    assert (heard.calls, count(conn)) == ([], 0)


@pytest.mark.parametrize("result", ["text", EVENT, 1, (event for event in MANY)])
def test_a_hook_that_returns_no_list_is_refused_by_name(
    outbox: Outbox, conn: psycopg.Connection[Any], result: Any
) -> None:
    @outbox.before_publish
    def wrong(events: list[Event]) -> Any:
        return result

    message = rf"before_publish hook .*wrong \(.*test_hooks.py:\d+\) returned a {type(result).__name__}: return a list"
    with conn.transaction(), pytest.raises(PublishError, match=message):
        outbox.publish(conn, EVENT)


def test_the_list_that_a_hook_returns_is_checked_like_any_list(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    outbox.before_publish(lambda events: [*events, "no event"])
    with conn.transaction(), pytest.raises(PublishError, match="event 1 of the list: an Event is needed, not a str"):
        outbox.publish(conn, EVENT)
    assert count(conn) == 0


def test_errors_of_the_other_hooks_are_logged_and_change_nothing(
    outbox: Outbox, conn: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(events: list[Event]) -> None:
        events.clear()
        raise LookupError("hook trouble")

    for moment in ("after_publish", "after_commit", "after_rollback"):
        getattr(outbox, moment)(fail)
    heard = Heard(outbox, "after_publish", "after_commit", "after_rollback")
    with outbox.transaction(conn) as tx:
        outbox.publish(tx, EVENT)
        with tx.transaction(force_rollback=True):
            outbox.publish(tx, MANY[0])
    assert count(conn) == 1
    assert heard.calls == [
        ("after_publish", [{"id": 42}]), ("after_publish", [0]),
        ("after_commit", [{"id": 42}]), ("after_rollback", [0]),
    ]  # fmt: skip
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.getMessage().split(" hook")[0] for record in errors] == [
        "the after_publish", "the after_publish", "the after_commit", "the after_rollback",
    ]  # fmt: skip
    assert "hook trouble" in caplog.text


def test_hooks_do_not_hear_of_events_whose_key_was_used_before(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    heard = Heard(outbox, "after_publish", "after_commit")
    with outbox.transaction(conn) as tx:
        outbox.publish_many(tx, [Event("T", 1, idempotency_key="a"), Event("T", 2, idempotency_key="a"), Event("T", 3)])
        assert outbox.publish(tx, "T", 4, idempotency_key="a") is None
    assert heard.calls == [("after_publish", [1, 3]), ("after_commit", [1, 3])]


@pytest.mark.parametrize("moment", ["after_commit", "after_rollback"])
def test_a_connection_that_cannot_report_its_end_is_refused(
    outbox: Outbox, conn: psycopg.Connection[Any], moment: str
) -> None:
    heard = Heard(outbox, "before_publish", moment)
    with conn.transaction():
        for publish in (lambda: outbox.publish(conn, EVENT), lambda: outbox.publish_many(conn, MANY)):
            with pytest.raises(PublishError, match=r"cannot report .* `with outbox.transaction\(conn\):`"):
                publish()
    assert (heard.calls, count(conn)) == ([], 0)


@pytest.mark.parametrize("moment", ["before_publish", "after_publish", "after_commit", "after_rollback"])
def test_an_asynchronous_hook_is_refused_by_a_synchronous_publish(
    outbox: Outbox, conn: psycopg.Connection[Any], moment: str
) -> None:
    async def hook(events: list[Event]) -> None:
        raise AssertionError("called")

    getattr(outbox, moment)(hook)
    with outbox.transaction(conn) as tx:
        for publish in (lambda: outbox.publish(tx, EVENT), lambda: outbox.publish_many(tx, MANY)):
            with pytest.raises(PublishError, match=rf"{moment} hook .* is asynchronous.* await publish_async"):
                publish()
    assert count(conn) == 0


async def test_asynchronous_publishes_await_hooks_of_both_kinds(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard(outbox)

    @outbox.before_publish
    async def change(events: list[Event]) -> list[Event]:
        return [*events, Event("Audited", "audit")]

    @outbox.after_commit
    async def fail(events: list[Event]) -> None:
        raise LookupError("asynchronous trouble")

    @outbox.after_rollback
    async def count_them(events: list[Event]) -> None:
        heard.calls.append(("count", [len(events)]))

    async with await psycopg.AsyncConnection.connect(dsn) as app, outbox.transaction(app) as tx:
        assert await outbox.publish_async(tx, EVENT) == EVENT.event_id
        async with tx.transaction(force_rollback=True):
            assert len(await outbox.publish_many_async(tx, MANY[:2])) == 3
    assert heard.calls == [
        ("before_publish", [{"id": 42}]), ("after_publish", [{"id": 42}, "audit"]),
        ("before_publish", [0, 1]), ("after_publish", [0, 1, "audit"]),
        ("after_commit", [{"id": 42}, "audit"]), ("after_rollback", [0, 1, "audit"]), ("count", [3]),
    ]  # fmt: skip
    assert "asynchronous trouble" in caplog.text
    assert count(conn) == 2


async def test_an_asynchronous_before_publish_hook_may_suppress_or_abort(outbox: Outbox, dsn: str) -> None:
    @outbox.before_publish
    async def judge(events: list[Event]) -> list[Event]:
        if events[0].payload == 1:
            raise LookupError("not today")
        return []

    async with await psycopg.AsyncConnection.connect(dsn) as app:
        with pytest.raises(LookupError, match="not today"):
            await outbox.publish_many_async(app, MANY[1:])
        assert await outbox.publish_many_async(app, MANY) == []
        assert await outbox.publish_async(app, MANY[0]) is None


@pytest.mark.parametrize("wrong", [None, "hook", lambda: None, lambda events, more: None])
def test_an_invalid_hook_is_refused_at_registration(outbox: Outbox, wrong: Any) -> None:
    with pytest.raises(RegistrationError, match="before_publish hook"):
        outbox.before_publish(wrong)


def test_hooks_work_in_a_pipeline(outbox: Outbox, dsn: str) -> None:
    heard = Heard(outbox, "after_publish", "after_commit", "after_rollback")
    with psycopg.connect(dsn, autocommit=True) as app:
        with app.pipeline(), outbox.transaction(app) as tx:
            tx.execute("savepoint before")
            outbox.publish_many(tx, MANY)
            tx.execute("rollback to before")
            outbox.publish(tx, EVENT)
        assert count(app) == 1
    assert [moment for moment, _ in heard.calls] == ["after_publish"] * 2 + ["after_rollback", "after_commit"]


def test_a_missing_table_of_a_hook_is_not_taken_for_a_missing_schema(
    outbox: Outbox, conn: psycopg.Connection[Any]
) -> None:
    outbox.before_publish(lambda events: conn.execute("select from nowhere") and None)
    with pytest.raises(psycopg.errors.UndefinedTable, match="nowhere"), conn.transaction():
        outbox.publish(conn, EVENT)
