"""A process tells in its row what waits for its turn, and takes the bounds that operators set."""

import pytest
from waiting import eventually

from partbox import Event, Outbox
from partbox.db.delivery.limits import HandlerLimit, WaitingValue
from partbox.worker.reports import limits

TENANTS = ("acme", "acme", "acme", "zoo")


@pytest.fixture
def outbox(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Outbox:
    monkeypatch.setattr(limits, "LIMITS_INTERVAL", 0.0)
    return Outbox(dsn, heartbeat="200ms")


def publish(outbox: Outbox) -> None:
    """An event for each of the tenants, each of an aggregate of its own."""
    with outbox.transaction() as conn:
        outbox.publish_many(conn, [Event("Paid", None, tenant_id=each) for each in TENANTS])


def waiting(outbox: Outbox) -> int:
    return sum(each.waiting for each in outbox.limits.list())


def only(outbox: Outbox) -> HandlerLimit:
    (found,) = outbox.limits.list()
    return found


def test_waiting_events_are_counted_by_handler_and_by_value_until_their_limit_is_lifted(outbox: Outbox) -> None:
    seen: list[str] = []
    outbox.on("Paid", name="charge", rate="1/h", limit_by="tenant_id")(lambda event: seen.append(event.tenant_id))
    publish(outbox)
    with outbox.worker():
        eventually(lambda: waiting(outbox) == len(TENANTS))
        found = only(outbox)
        assert (found.rate_text, found.at_once_text, found.by, found.processes) == ("1/h", "none", "tenant_id", 1)
        assert found.waited is not None
        assert found.waited > 0
        assert {each.value: each.waiting for each in found.values} == {"acme": 3, "zoo": 1}
        assert seen == []
        outbox.limits.set("charge", rate="none")
        eventually(lambda: sorted(seen) == sorted(TENANTS))
        eventually(lambda: waiting(outbox) == 0)
        assert (only(outbox).rate_text, only(outbox).values, only(outbox).waited) == ("none", (), None)


def test_a_handler_that_declares_no_limit_can_be_limited_and_freed_again(outbox: Outbox) -> None:
    seen: list[str] = []
    outbox.on("Paid", name="charge")(lambda event: seen.append(event.tenant_id))
    outbox.limits.set("charge", rate="1/h")
    publish(outbox)
    with outbox.worker():
        eventually(lambda: waiting(outbox) == len(TENANTS))
        assert (only(outbox).rate_text, only(outbox).by, only(outbox).values, seen) == ("1/h", None, (), [])
        outbox.limits.reset("charge")
        eventually(lambda: sorted(seen) == sorted(TENANTS))
        eventually(lambda: outbox.limits.list() == [])


def test_a_function_for_limit_by_is_named(outbox: Outbox) -> None:
    def by_city(event: object) -> None:
        return None

    outbox.on("Paid", name="charge", rate="1/h", limit_by=by_city)(print)
    publish(outbox)
    with outbox.worker():
        eventually(lambda: waiting(outbox) == len(TENANTS))
        found = only(outbox)
        assert found.by is not None
        assert found.by.endswith("by_city")
        assert [(each.value, each.waiting) for each in found.values] == [("none", len(TENANTS))]
        assert isinstance(found.values[0], WaitingValue)


def test_without_limits_nothing_is_noted(outbox: Outbox, dsn: str, conn) -> None:  # type: ignore[no-untyped-def]
    seen: list[str] = []
    outbox.on("Paid", name="charge")(lambda event: seen.append(event.tenant_id))
    publish(outbox)
    with outbox.worker():
        eventually(lambda: len(seen) == len(TENANTS))
        assert conn.execute("select limits from partbox.instance").fetchall() == [(None,)]
