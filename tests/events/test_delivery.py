"""Handlers of every kind get the class, the event, or both, of every kind of class."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from psycopg import Connection
from shapes import ORDERS

from partbox import DeliveredEvent, Outbox
from partbox.testing import Kit

SUPPLIED: list[Any] = []  # what handlers got, as (class, event)


def got(model: Any = None, event: Any = None) -> None:
    SUPPLIED.append((model, event))


def handler_of(kind: str, form: str, cls: Any) -> Callable[..., Any]:
    """A handler whose annotations ask for that form of the class."""
    typed: Any = DeliveredEvent[cls]
    if kind in ("batch", "async batch"):
        cls, typed, plain = list[cls], list[typed], list[DeliveredEvent]  # type: ignore[misc]
    else:
        plain = DeliveredEvent  # type: ignore[misc]

    def by_class(order: cls) -> None:
        got(order)

    def by_event(event: typed) -> None:
        got(event=event)

    def by_both(order: cls, event: plain) -> None:
        got(order, event)

    def by_class_in(order: cls, conn: Connection[Any]) -> None:
        conn.execute("select 1")
        got(order)

    def by_event_in(event: typed, conn: Connection[Any]) -> None:
        got(event=event)

    def by_both_in(event: plain, order: cls, conn: Connection[Any]) -> None:
        conn.execute("select 1")
        got(order, event)

    async def by_class_later(order: cls) -> None:
        await asyncio.sleep(0)
        got(order)

    async def by_event_later(event: typed) -> None:
        got(event=event)

    async def by_both_later(order: cls, event: plain) -> None:
        got(order, event)

    forms: dict[str, tuple[Callable[..., Any], ...]] = {
        "class": (by_class, by_class_later, by_class_in),
        "event": (by_event, by_event_later, by_event_in),
        "both": (by_both, by_both_later, by_both_in),
    }
    return forms[form][2 if kind == "transactional" else kind.startswith("async")]


def orders() -> list[Any]:
    """One of each class, and their keys."""
    return [cls(order_id=number, total=Decimal("1.20")) for number, cls in enumerate(ORDERS)]


def check(form: str, supplied: list[tuple[Any, Any]], wanted: list[Any]) -> None:
    models = [model for model, _ in supplied]
    events = [event for _, event in supplied]
    if form == "event":
        assert [event.payload for event in events] == wanted
        models = [event.payload for event in events]
    else:
        assert models == wanted
    assert [type(model) for model in models] == [type(each) for each in wanted]
    if form != "class":
        assert [(event.aggregate_type, event.aggregate_id, event.version) for event in events] == [
            ("Order", str(each.order_id), 2) for each in wanted
        ]
    if form == "both":
        assert [event.payload["total"] for event in events] == ["1.20"] * len(wanted)


@pytest.mark.parametrize("form", ["class", "event", "both"])
@pytest.mark.parametrize("kind", ["sync", "async", "batch", "async batch", "transactional"])
def test_each_kind_of_handler_gets_the_arguments_that_it_asks_for(kind: str, form: str, dsn: str) -> None:
    outbox, published = Outbox(), orders()
    for cls in ORDERS:
        handler = handler_of(kind, form, cls)
        if "batch" in kind:
            outbox.on_batch(cls)(handler)
        elif kind == "transactional":
            outbox.on(cls, transactional=True)(handler)
        else:
            outbox.on(cls)(handler)
    SUPPLIED.clear()
    with Kit(outbox, dsn) as kit:
        with outbox.transaction(kit._open_connection()) as conn:
            outbox.publish_many(conn, published)
        kit.drain().assert_done()
    supplied = [*SUPPLIED]
    if "batch" in kind:
        supplied = [
            (model, event)
            for models, events in supplied
            for model, event in zip(models or [None] * len(events), events or [None] * len(models), strict=True)
        ]
    check(form, supplied, published)


def only_event(event: DeliveredEvent) -> None:
    got(event=event)


@pytest.mark.parametrize("form", ["class", "event", "both"])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_task_gets_the_arguments_that_it_asks_for(kind: str, form: str, dsn: str) -> None:
    outbox, wanted = Outbox(), orders()
    with Kit(outbox, dsn) as kit:
        for order in wanted:
            function = only_event if form == "event" else handler_of(kind, form, type(order))
            task = outbox.task(name=type(order).__name__)(function)
            arguments = {} if form == "event" else {"order": order}
            with outbox.transaction(kit._open_connection()) as conn:
                task.options(aggregate_id=order.order_id).publish(conn, **arguments)
        SUPPLIED.clear()
        kit.drain().assert_done()
    models, events = zip(*SUPPLIED, strict=True)
    if form == "event":
        assert [(event.aggregate_id, event.payload) for event in events] == [
            (str(each.order_id), {}) for each in wanted
        ]
        return
    assert (list(models), [type(each) for each in models]) == (wanted, [type(each) for each in wanted])
    if form == "both":
        assert [event.aggregate_id for event in events] == [str(each.order_id) for each in wanted]
