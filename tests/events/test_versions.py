"""Versions: old payloads are raised to the class, and one that is too new is no poison."""

import dataclasses
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

import partbox
from partbox import DeliveredEvent, Event, NewerVersionError, Outbox, PayloadError, RegistrationError
from partbox.codecs import Codecs
from partbox.events.upcasts import add_upcast
from partbox.testing import Kit, delivered

NOWHERE = "postgresql://nowhere"


@partbox.event(name="Paid", aggregate_type="Order", key="order_id", version=3)
class Paid(BaseModel):
    """Of version 1 it had an `id` and euros, of version 2 cents."""

    model_config = ConfigDict(strict=True)
    order_id: int
    amount: Decimal


def renamed(payload: dict[str, Any]) -> dict[str, Any]:
    return {"order_id": payload["id"], "cents": payload["euros"] * 100}


def in_euros(payload: dict[str, Any]) -> dict[str, Any]:
    return {"order_id": payload["order_id"], "amount": str(Decimal(payload["cents"]) / 100)}


def outbox_with(*steps: tuple[int, Any], dsn: str = NOWHERE, **settings: Any) -> Outbox:
    outbox = Outbox(dsn, **settings)
    for version, function in steps:
        outbox.upcast(Paid, from_version=version)(function)
    return outbox


STEPS = ((1, renamed), (2, in_euros))
OLD = {"id": 7, "euros": 3}


@pytest.mark.parametrize(
    ("payload", "version"),
    [(OLD, None), (OLD, 1), ({"order_id": 7, "cents": 300}, 2), ({"order_id": 7, "amount": "3"}, 3)],
)
def test_a_payload_of_any_version_arrives_as_the_current_class(payload: Any, version: int | None) -> None:
    event = delivered("Paid", payload, version=version, outbox=outbox_with(*STEPS))
    assert event.version == (version or 1)
    assert event.payload_as(Paid) == Paid(order_id=7, amount=Decimal(3))
    assert event.payload == payload  # what an upcast does to its own copy is not seen


def test_an_upcast_may_change_its_argument_in_place() -> None:
    def in_place(payload: dict[str, Any]) -> dict[str, Any]:
        payload["cents"] = payload.pop("euros") * 100
        payload["order_id"] = payload.pop("id")
        return payload

    event = delivered("Paid", OLD, outbox=outbox_with((1, in_place), (2, in_euros)))
    assert event.payload == OLD
    assert event.payload_as(Paid).order_id == 7
    assert event.payload == OLD


def test_an_upcast_may_return_values_that_json_does_not_have() -> None:
    def in_python(payload: dict[str, Any]) -> dict[str, Any]:
        return {"order_id": payload["order_id"], "amount": Decimal(payload["cents"]) / 100}

    event = delivered("Paid", {"order_id": 7, "cents": 300}, version=2, outbox=outbox_with((2, in_python)))
    assert event.payload_as(Paid).amount == 3


def test_a_payload_asked_for_as_another_class_is_read_as_stored() -> None:
    @dataclasses.dataclass
    class View:
        id: int

    event = delivered("Paid", OLD, outbox=outbox_with(*STEPS))
    assert event.payload_as(View) == View(7)
    assert delivered("Other", {"order_id": 7, "amount": "3"}).payload_as(Paid).order_id == 7


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (
            (),
            r"has version 1, and no upcast leads from version 1 to 2 of Paid: register @outbox",
        ),
        (((1, renamed),), "has version 1, and no upcast leads from version 2 to 3 of Paid"),
        (((1, lambda payload: None), (2, in_euros)), "the upcast from version 1 returned None: return the payload"),
        (((1, lambda payload: payload["secret"]), (2, in_euros)), r"the upcast from version 1 failed .KeyError.$"),
        (
            ((1, renamed), (2, lambda payload: {"order_id": "secret"})),
            "is no Paid: order_id: Input should be",
        ),
    ],
)
def test_a_failed_upcast_names_its_step_and_nothing_of_the_payload(steps: Any, said: str) -> None:
    event = delivered(
        "Paid", {**OLD, "secret": "secret"} if "KeyError" not in said else OLD, outbox=outbox_with(*steps)
    )
    with pytest.raises(PayloadError, match=said) as caught:
        event.payload_as(Paid)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("cls", "version", "function", "said"),
    [
        (Paid, 3, renamed, "from version 3 leads nowhere, because Paid has version 3: give a version from 1 to 2"),
        (Paid, 0, renamed, "from version 0 leads nowhere"),
        (Paid, "1", renamed, "from version '1' leads nowhere"),
        (Paid, 1, lambda: None, "must be a plain function that takes the payload"),
        (Paid, 1, 7, "must be a plain function that takes the payload"),
        (dict, 1, renamed, "<class 'dict'> is no event class: decorate it with @partbox.event"),
    ],
)
def test_an_upcast_that_leads_nowhere_is_refused(cls: Any, version: Any, function: Any, said: str) -> None:
    with pytest.raises(RegistrationError, match=said):
        Outbox(NOWHERE).upcast(cls, from_version=version)(function)


def test_a_second_upcast_from_a_version_and_an_upcast_for_version_1_are_refused() -> None:
    @partbox.event
    @dataclasses.dataclass
    class First:
        x: int

    with pytest.raises(RegistrationError, match=r"leads nowhere, .*First has version 1: raise the version first"):
        Outbox(NOWHERE).upcast(First, from_version=1)(renamed)
    with pytest.raises(RegistrationError, match=r"from version 1 exists already, as .*renamed .*: remove one"):
        outbox_with(*STEPS).upcast(Paid, from_version=1)(in_euros)


def test_a_damaged_version_is_a_payload_error() -> None:
    event = delivered("Paid", OLD, version=2)
    event = DeliveredEvent((*event.record[:10], b'{"partbox-version": "two"}', *event.record[11:]), event._claim)
    with pytest.raises(PayloadError, match="the header partbox-version is no number"):
        event.payload_as(Paid)


@given(st.integers(1, 8), st.integers(1, 8), st.data())
def test_every_chain_of_upcasts_runs_each_step_once_and_in_order(stored: int, own: int, data: st.DataObject) -> None:
    @partbox.event(name="Chained", version=own)
    @dataclasses.dataclass
    class Chained:
        path: list[int]

    codecs = Codecs()
    there = data.draw(st.sets(st.sampled_from(range(1, own)))) if own > 1 else set()
    for each in there:
        add_upcast(codecs.upcasts, Chained, each, lambda payload, each=each: {"path": [*payload["path"], each]})
    outbox = Outbox(NOWHERE)
    outbox.codecs.upcasts.update(codecs.upcasts)
    event = delivered("Chained", {"path": []}, version=stored, outbox=outbox)
    steps = list(range(stored, own))
    if stored > own:
        with pytest.raises(NewerVersionError, match=f"has version {stored}, newer than version {own} of Chained here"):
            event.payload_as(Chained)
    elif not there.issuperset(steps):
        missing = min(set(steps) - there)
        with pytest.raises(PayloadError, match=f"no upcast leads from version {missing} to {missing + 1}"):
            event.payload_as(Chained)
    else:
        assert event.payload_as(Chained).path == steps


NEWER = Event("Paid", {"order": 7}, aggregate_type="Order", aggregate_id=7, version=4)


@pytest.mark.parametrize(
    ("settings", "state"),
    [({}, "deferred"), ({"on_unroutable": "dead"}, "dead"), ({"on_unroutable": "ignore"}, "deferred")],
    ids=["unset", "dead", "ignore"],
)
@pytest.mark.parametrize("kind", ["sync", "async", "batch", "transactional", "asks itself"])
def test_an_event_of_a_newer_version_is_deferred_unless_on_unroutable_says_otherwise(
    kind: str, settings: Any, state: str, dsn: str
) -> None:
    seen: list[Any] = []
    outbox = Outbox(NOWHERE, max_attempts=1, **settings)

    def plain(paid: Paid) -> None:
        seen.append(paid)

    async def later(paid: Paid) -> None:
        seen.append(paid)

    def listed(paid: list[Paid]) -> None:
        seen.extend(paid)

    def within(paid: Paid, conn: Any) -> None:
        seen.append(paid)

    def itself(event: DeliveredEvent) -> None:
        seen.append(event.payload_as(Paid))

    if kind == "batch":
        outbox.on_batch(Paid)(listed)
    elif kind == "transactional":
        outbox.on(Paid, transactional=True)(within)
    else:
        outbox.on(Paid)({"sync": plain, "async": later, "asks itself": itself}[kind])
    with Kit(outbox, dsn) as kit:
        kit.publish(NEWER)
        kit.publish(Paid(order_id=8, amount=Decimal(1)))
        newer, known = kit.drain()
    assert (newer.state, newer.attempts, known.state) == (state, 0, "done")
    assert seen == [Paid(order_id=8, amount=Decimal(1))]
    assert "has version 4, newer than version 3 of Paid here" in (newer.reason or "")


@pytest.mark.parametrize("subscription", ["default", "billing"])
def test_an_event_of_a_newer_version_waits_through_a_deploy_of_hours_and_is_logged_once(
    subscription: str, dsn: str, conn: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Each type and version is told of in a line, with what follows and the remedy; no attempt is charged or noted."""
    outbox = Outbox(dsn, max_attempts=1)
    if subscription != "default":
        outbox.subscriptions.create(subscription)

    @outbox.on(Paid, subscription=subscription)
    def plain(paid: Paid) -> None: ...

    with Kit(outbox, dsn) as kit:
        for version, key in ((4, 7), (4, 7), (4, 8), (5, 9)):
            kit.publish(dataclasses.replace(NEWER, event_id=None, version=version, aggregate_id=key))
        assert sorted(kit.drain(subscription).states) == ["deferred", "deferred", "deferred", "held"]
        lines = [each for each in caplog.records if getattr(each, "event", None) == "partbox.newer_version"]
        for _ in range(12):
            kit.advance("1h")
            assert [(each.state, each.attempts) for each in kit.drain(subscription)] == [("deferred", 0)] * 3
    assert conn.execute("select from partbox.attempt").fetchall() == []
    assert len(lines) == 2
    assert "has version 4, newer than version 3" in lines[0].getMessage()
    told = lines[0].getMessage()
    assert "wait, without counting an attempt, until a process with the newer class owns their partition" in told
    assert "deploy the newer code to all workers of this subscription" in lines[0].getMessage()


def test_a_function_as_on_unroutable_gets_the_event_of_a_newer_version_and_decides_its_outcome(dsn: str) -> None:
    asked: list[DeliveredEvent] = []

    def judge(event: DeliveredEvent) -> partbox.RetryAfter:
        asked.append(event)
        return partbox.RetryAfter(7)

    outbox = Outbox(NOWHERE, on_unroutable=judge)

    @outbox.on(Paid)
    def plain(paid: Paid) -> None: ...

    with Kit(outbox, dsn) as kit:
        kit.publish(NEWER)
        (newer,) = kit.drain()
    assert (newer.state, newer.due, [event.version for event in asked]) == ("deferred", 7, [4])


@pytest.mark.parametrize("is_async", [False, True])
def test_an_on_unroutable_function_that_fails_or_must_be_awaited_loses_no_event(is_async: bool, dsn: str) -> None:
    async def later(event: DeliveredEvent) -> None: ...

    def fails(event: DeliveredEvent) -> None:
        raise OSError("away")

    outbox = Outbox(NOWHERE, on_unroutable=later if is_async else fails)

    @outbox.on(Paid)
    def plain(paid: Paid) -> None: ...

    with Kit(outbox, dsn) as kit:
        kit.publish(NEWER)
        (newer,) = kit.drain()
    assert (newer.state, newer.attempts) == (("deferred", 0) if is_async else ("retrying", 1))


def test_upgraded_code_handles_events_that_older_code_has_deferred(dsn: str) -> None:
    """A rolling deploy: the order of the key stays."""
    seen: list[Any] = []
    old, new = Outbox(NOWHERE), Outbox(NOWHERE)

    @partbox.event(name="Daily", aggregate_type="Order", key="id", version=3)
    @dataclasses.dataclass
    class Today:
        id: int

    @partbox.event(name="Daily", aggregate_type="Order", key="number", version=4)
    @dataclasses.dataclass
    class Tomorrow:
        number: int

    @old.on(Today)
    def today(daily: Today) -> None:
        seen.append(daily)

    @new.on(Tomorrow)
    def tomorrow(daily: Tomorrow, event: DeliveredEvent) -> None:
        seen.append((daily, event.version))

    new.upcast(Tomorrow, from_version=3)(lambda payload: {"number": payload["id"]})
    with Kit(old, dsn) as kit:
        kit.publish(Tomorrow(7))
        kit.publish(Today(7))
        assert kit.drain().states == ["deferred", "held"]
    with Kit(new, dsn) as kit:
        kit.advance(10)
        kit.drain().assert_done()
    assert seen == [(Tomorrow(7), 4), (Tomorrow(7), 3)]
