"""The testing kit, operators and the inbox know classes for their names."""

from decimal import Decimal
from typing import Any

import pytest
from psycopg import Connection
from shapes import ORDERS, DataOrder, ModelOrder

from partbox import Dead, DeliveredEvent, Outbox, PartboxError, PayloadError, PublishError
from partbox.testing import Kit, delivered


@pytest.mark.parametrize("cls", ORDERS)
def test_an_event_is_delivered_as_its_class_without_a_database(cls: Any) -> None:
    order = cls(order_id=7, total=Decimal("1.2"))
    event = delivered(order, attempt=3, aggregate_id=8)
    assert (event.payload, type(event.payload)) == (order, cls)
    assert (event.event_type, event.aggregate_id, event.version, event.attempt) == (cls.__name__, "8", 2, 3)
    assert delivered(cls.__name__, {"order_id": 7, "total": "1.2"}).payload == {"order_id": 7, "total": "1.2"}


def test_published_events_can_be_looked_up_by_class(dsn: str) -> None:
    with Kit(Outbox(dsn), dsn) as kit:
        kit.publish(DataOrder(1, Decimal(1)))
        kit.publish("Other", 1)
        kit.record(ModelOrder(order_id=2, total=Decimal(2)), state="dead")
        assert kit.published(DataOrder).payloads == [DataOrder(1, Decimal(1))]
        assert kit.published(ModelOrder, aggregate_id=2).one().payload == ModelOrder(order_id=2, total=Decimal(2))
        assert kit.published("DataOrder").one().payload == {"order_id": 1, "total": "1", "shop": None}
        with pytest.raises(AssertionError, match="no event with event_type='ModelOrder', aggregate_id='9', not one"):
            kit.published(ModelOrder, aggregate_id=9).one()
        with pytest.raises(PublishError, match="an Event is needed, not a int"):
            kit.published(int)  # type: ignore[type-var]
        assert kit.outbox.dead.count(ModelOrder) == 1
        assert kit.outbox.dead.count(DataOrder) == 0


def test_faults_and_outcomes_are_chosen_by_class(dsn: str) -> None:
    outbox = Outbox(dsn)

    @outbox.on("*")
    def anything(event: DeliveredEvent) -> None: ...

    with Kit(outbox, dsn) as kit:
        kit.fail_next(DataOrder, OSError("away"))
        kit.publish(ModelOrder(order_id=1, total=Decimal(1)))
        kit.publish(DataOrder(1, Decimal(1)))
        drained = kit.drain()
        assert (drained.of(ModelOrder).states, drained.of(DataOrder).states) == (["done"], ["retrying"])


def test_upcasts_that_a_test_registers_are_removed_afterwards(dsn: str) -> None:
    outbox = Outbox(dsn)
    with Kit(outbox, dsn) as kit:
        outbox.upcast(DataOrder, from_version=1)(dict)
        kit.publish("DataOrder", {"order_id": 1, "total": 1}, version=1)
        assert kit.published(DataOrder).payloads == [DataOrder(1, Decimal(1))]
    assert outbox.codecs.upcasts == {}


def test_a_subscription_may_want_classes(dsn: str) -> None:
    outbox = Outbox(dsn)
    outbox.subscriptions.create("orders", types=[DataOrder, "Other"])
    assert [each.types for each in outbox.subscriptions.list() if each.name == "orders"] == [("DataOrder", "Other")]
    with pytest.raises(PartboxError, match="is one type: give a list"):
        outbox.subscriptions.create("more", types=DataOrder)  # type: ignore[arg-type]


def test_the_inbox_requires_the_event_and_says_how_to_get_it(dsn: str, conn: Connection[Any]) -> None:
    outbox, first = Outbox(dsn), []

    @outbox.on(DataOrder, transactional=True)
    def once(order: DataOrder, event: DeliveredEvent[DataOrder], conn: Connection[Any]) -> None:
        first.append(outbox.inbox.first_time(conn, event, "once"))
        first.append(outbox.inbox.first_time(conn, event, "once"))
        with pytest.raises(PartboxError, match=r"an instance of DataOrder has no event id: have the handler"):
            outbox.inbox.first_time(conn, order, "once")  # type: ignore[arg-type]

    with Kit(outbox, dsn) as kit:
        kit.publish(DataOrder(1, Decimal(1)))
        kit.drain().assert_done()
    assert first == [True, False]


def test_interceptors_see_the_event_as_it_is_published_whatever_the_handler_asks_for(dsn: str) -> None:
    outbox, seen = Outbox(dsn), list[Any]()

    class Watching:
        def before(self, event: DeliveredEvent) -> None:
            seen.append((event.payload, event.payload_as(DataOrder)))

        def after(self, event: DeliveredEvent, outcome: object, error: BaseException | None) -> None:
            seen.append((event.payload, type(error)))

    outbox.intercept(Watching())

    @outbox.on(DataOrder)
    def handler(event: DeliveredEvent[DataOrder]) -> None:
        seen.append(event.payload)

    with Kit(outbox, dsn) as kit:
        kit.publish(DataOrder(1, Decimal(1)))
        kit.publish("DataOrder", {"order_id": "secret"}, version=2)
        good, bad = kit.drain()
    plain = {"order_id": 1, "total": "1", "shop": None}
    order = DataOrder(1, Decimal(1))
    assert seen == [(plain, order), order, (plain, type(None))]
    assert (good.state, bad.state, bad.attempts) == ("done", "dead", 0)
    assert "is no DataOrder: order_id" in (bad.reason or "")
    assert "secret" not in (bad.reason or "")


def listed(returned: Any, *given: Any) -> Any:
    """What a batch handler of DataOrder gets, and what its list comes to, of events of which some cannot be read."""
    outbox, seen = Outbox("postgresql://nowhere"), list[Any]()

    @outbox.on_batch(DataOrder)
    def handler(orders: list[DataOrder]) -> Any:
        seen.append([order.order_id for order in orders])
        return returned

    call = outbox.handlers.build_routes("default", outbox.settings)["DataOrder", "Order"].call
    return seen, call([delivered("DataOrder", {"order_id": each, "total": 1}, version=2) for each in given])


def test_an_unreadable_event_in_a_batch_fails_no_other_event() -> None:
    seen, outcomes = listed([None, Dead("no")], 1, "x", 2)
    assert seen == [[1, 2]]
    assert (outcomes[0], type(outcomes[1]), outcomes[2]) == (None, PayloadError, Dead("no"))
    seen, outcomes = listed(None, "x", 2)
    assert (seen, type(outcomes[0]), outcomes[1]) == ([[2]], PayloadError, None)
    seen, outcomes = listed([None], "x", "y")
    assert (seen, [type(each) for each in outcomes]) == ([], [PayloadError, PayloadError])
    assert listed([None, None], 1, 2) == ([[1, 2]], [None, None])
    with pytest.raises(ValueError, match="1 outcomes for 2 events"):
        listed([None], 1, "x", 2)
