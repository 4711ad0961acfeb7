"""What handlers ask for by their annotations, and what cannot be met is refused when they are registered."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import attrs
import msgspec
import pytest
from psycopg import Connection
from pydantic import BaseModel
from shapes import DataOrder, ModelOrder, StructOrder

import partbox
from partbox import DeliveredEvent, Event, Outbox, RegistrationError
from partbox.handlers.argument_plan import ArgumentPlan, EventPart

if TYPE_CHECKING:
    from elsewhere import Unknown  # type: ignore[import-not-found]

T = TypeVar("T")
EVENT, TYPED_EVENT, PAYLOAD = EventPart.EVENT, EventPart.TYPED_EVENT, EventPart.PAYLOAD


class View(BaseModel):
    """Of a consumer that wants a part of the payload."""

    order_id: int


class Shape(Protocol):
    order_id: int


class Box(BaseModel, Generic[T]):
    inside: T


def registered(handler: Any, event_type: Any, *, batch: bool = False, **options: Any) -> ArgumentPlan | None:
    outbox = Outbox("postgresql://nowhere")
    if batch:
        outbox.on_batch(event_type, **options)(handler)
    else:
        outbox.on(event_type, **options)(handler)
    (registration,) = outbox.handlers._registered.values()
    return registration.argument_plan


def nothing(event): ...  # type: ignore[no-untyped-def]
def anything(event: Any) -> None: ...
def some(event: T) -> T: ...  # type: ignore[empty-body]
def event(event: DeliveredEvent) -> None: ...
def event_of_anything(event: DeliveredEvent[Any]) -> None: ...
def shaped(event: Shape) -> None: ...
def stars(*events: Any) -> None: ...
def optional(event: DeliveredEvent | None) -> None: ...
def postponed(event: "DeliveredEvent") -> None: ...
def events(events: list[DeliveredEvent]) -> None: ...
def iterated(events: Iterable[Any]) -> None: ...
def bare(events: list) -> None: ...  # type: ignore[type-arg]
def with_connection(event: DeliveredEvent, conn: Connection[Any]) -> None: ...


@pytest.mark.parametrize(
    "handler", [nothing, anything, some, event, event_of_anything, shaped, stars, optional, postponed]
)
@pytest.mark.parametrize("event_type", ["ModelOrder", ModelOrder])
def test_a_handler_that_asks_for_the_event_is_called_directly_without_a_wrapper(handler: Any, event_type: Any) -> None:
    assert registered(handler, event_type) is None
    outbox = Outbox("postgresql://nowhere")
    outbox.on(event_type)(handler)
    assert outbox.handlers.build_routes("default", outbox.settings)["ModelOrder", "Order"].call is handler


@pytest.mark.parametrize("handler", [nothing, anything, events, iterated, bare, stars])
def test_a_handler_that_asks_for_a_list_of_events_is_called_without_a_wrapper(handler: Any) -> None:
    assert registered(handler, ModelOrder, batch=True) is None


def test_lambdas_and_builtins_ask_for_nothing() -> None:
    assert [registered(each, ModelOrder) for each in (lambda event: None, print)] == [None] * 2
    assert registered(with_connection, ModelOrder, transactional=True) is None


def of_class(order: ModelOrder) -> None: ...
def of_text(order: "ModelOrder") -> None: ...
def of_base(order: BaseModel) -> None: ...
def of_union(order: ModelOrder | StructOrder) -> None: ...
def of_event(event: DeliveredEvent[ModelOrder]) -> None: ...
def of_event_text(event: "DeliveredEvent[ModelOrder]") -> None: ...
def of_event_union(event: DeliveredEvent[ModelOrder | DataOrder]) -> None: ...
def of_events(event: DeliveredEvent[ModelOrder] | DeliveredEvent[DataOrder]) -> None: ...
def of_both(order: ModelOrder, event: DeliveredEvent) -> None: ...
def of_both_turned(event: DeliveredEvent[ModelOrder], order: ModelOrder) -> None: ...


@pytest.mark.parametrize(
    ("handler", "parts"),
    [
        (of_class, (PAYLOAD,)),
        (of_text, (PAYLOAD,)),
        (of_base, (PAYLOAD,)),
        (of_union, (PAYLOAD,)),
        (of_event, (TYPED_EVENT,)),
        (of_event_text, (TYPED_EVENT,)),
        (of_event_union, (TYPED_EVENT,)),
        (of_events, (TYPED_EVENT,)),
        (of_both, (PAYLOAD, EVENT)),
        (of_both_turned, (TYPED_EVENT, PAYLOAD)),
        (functools.partial(of_both_turned), (TYPED_EVENT, PAYLOAD)),
    ],
)
def test_a_handler_that_asks_for_the_class_gets_an_instance(handler: Any, parts: tuple[EventPart, ...]) -> None:
    assert registered(handler, ModelOrder) == ArgumentPlan(ModelOrder, parts)


def test_a_handler_for_the_name_of_a_type_may_ask_for_a_class_of_any_of_the_four_kinds() -> None:
    def part(view: View) -> None: ...
    def box(box: Box[int]) -> None: ...
    def both(events: Sequence[DeliveredEvent], views: Sequence[View]) -> None: ...

    assert registered(part, "ModelOrder") == ArgumentPlan(View, (PAYLOAD,))
    assert registered(of_class, "ModelOrder") == ArgumentPlan(ModelOrder, (PAYLOAD,))
    assert registered(box, "Boxed") == ArgumentPlan(Box[int], (PAYLOAD,))
    assert registered(both, "ModelOrder", batch=True) == ArgumentPlan(View, (EVENT, PAYLOAD))


def test_handler_objects_may_name_a_class_as_their_event_type() -> None:
    class Mailer:
        event_type = ModelOrder

        def handle(self, order: ModelOrder) -> None: ...

    class Caller:
        def __call__(self, order: ModelOrder) -> None: ...

    assert registered(Caller(), ModelOrder) == ArgumentPlan(ModelOrder, (PAYLOAD,))
    outbox = Outbox("postgresql://nowhere")
    outbox.register(Mailer())
    (row,) = outbox.handlers.build_table()
    assert (row.event_type, row.options) == ("ModelOrder", {"payload": "ModelOrder"})


def test_annotations_of_a_class_within_a_function_are_found() -> None:
    """As with `from __future__ import annotations`: the name is no global."""

    @partbox.event
    @dataclasses.dataclass
    class Inner:
        x: int

    def handler(inner: "Inner", event: "DeliveredEvent[Inner]") -> None: ...
    def handlers(inner: "list[Inner]") -> None: ...

    assert registered(handler, Inner) == ArgumentPlan(Inner, (PAYLOAD, TYPED_EVENT))
    assert registered(handlers, Inner, batch=True) == ArgumentPlan(Inner, (PAYLOAD,))


def test_handlers_by_name_and_by_class_share_one_routing_table() -> None:
    outbox = Outbox("postgresql://nowhere")
    outbox.on(ModelOrder)(of_class)
    with pytest.raises(RegistrationError, match=r"'ModelOrder' of any aggregate type has a handler .*of_class"):
        outbox.on("ModelOrder")(event)
    outbox.on("ModelOrder", subscription="other")(event)
    assert [(row.event_type, row.subscription) for row in outbox.handlers.build_table()] == [
        ("ModelOrder", "default"),
        ("ModelOrder", "other"),
    ]


def wrong_class(order: DataOrder) -> None: ...
def wrong_carrier(order: DeliveredEvent[DataOrder]) -> None: ...
def published(event: Event) -> None: ...
def dictionary(event: dict[str, Any]) -> None: ...
def number(event: int) -> None: ...
def either(event: DeliveredEvent | ModelOrder) -> None: ...
def single(order: ModelOrder) -> None: ...
def two(order, event) -> None: ...  # type: ignore[no-untyped-def]
def twice(order: ModelOrder, other: ModelOrder) -> None: ...
def differing(order: ModelOrder, event: DeliveredEvent[View]) -> None: ...
def unknown(order: "Unknown") -> None: ...
def broken(order: "1 / 0") -> None: ...  # type: ignore[valid-type]
def lists(orders: list[ModelOrder]) -> None: ...


@attrs.define
class Holder:
    socket: Connection[Any]


@dataclasses.dataclass
class DataHolder:
    socket: Connection[Any]


def attrs_held(held: Holder) -> None: ...
def data_held(held: DataHolder) -> None: ...


@pytest.mark.parametrize(
    ("handler", "event_type", "said"),
    [
        (
            wrong_class,
            ModelOrder,
            "gets 'ModelOrder', and asks for DataOrder: register it for DataOrder, or",
        ),
        (wrong_class, "ModelOrder", "gets 'ModelOrder', and asks for DataOrder: register it for DataOrder"),
        (wrong_carrier, ModelOrder, r"asks for .*DeliveredEvent\[.*DataOrder\], which no event provides"),
        (published, ModelOrder, "asks for Event, which no event provides: ask for a DeliveredEvent, a DeliveredEvent"),
        (dictionary, "ModelOrder", r"asks for dict\[str, typing.Any\], which no event provides: ask for a Delivered"),
        (number, ModelOrder, r"asks for int, which no event provides: .* or ModelOrder"),
        (either, ModelOrder, "DeliveredEvent"),
        (single, "*", "gets every type of event, and asks for ModelOrder: ask for a DeliveredEvent"),
        (
            two,
            ModelOrder,
            "must take exactly one positional argument, the event; or one more",
        ),
        (twice, ModelOrder, "must take exactly one positional argument"),
        (differing, "ModelOrder", "must take exactly one positional argument"),
        (
            unknown,
            ModelOrder,
            r"annotation of 'order' of .*unknown .* cannot be resolved .*'Unknown'.*: import",
        ),
        (broken, ModelOrder, "annotation of 'order' .* cannot be resolved .ZeroDivisionError"),
        (lists, ModelOrder, r"asks for list\[shapes.ModelOrder\], which no event provides"),
        (attrs_held, "T", "asks for Holder, which cannot be read: .*Connection"),
        (data_held, "T", "asks for DataHolder, which cannot be read: .*Connection"),
        (event, View, "is the class View, which is no event: decorate it with @partbox.event, or name the type"),
    ],
)
def test_a_demand_that_cannot_be_met_is_refused_with_the_remedy(handler: Any, event_type: Any, said: str) -> None:
    outbox = Outbox("postgresql://nowhere")
    with pytest.raises(RegistrationError, match=said):
        outbox.on(event_type)(handler)
    assert outbox.handlers.build_table() == []


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (single, r"gets lists, and asks for ModelOrder: annotate the parameter with list\[ModelOrder\]"),
        (event, r"gets lists, and asks for DeliveredEvent: annotate the parameter with list\[ModelOrder\]"),
    ],
)
def test_a_batch_handler_must_ask_for_a_list(handler: Any, said: str) -> None:
    with pytest.raises(RegistrationError, match=said):
        Outbox("postgresql://nowhere").on_batch(ModelOrder)(handler)


def test_a_decorator_that_registers_nothing_is_still_refused() -> None:
    outbox = Outbox("postgresql://nowhere")
    refused: list[Callable[[], object]] = [
        lambda: outbox.on(event),  # type: ignore[arg-type]
        lambda: outbox.on_batch(events),  # type: ignore[arg-type]
        lambda: outbox.on(Connection),  # type: ignore[type-var]
    ]
    for each in refused:
        with pytest.raises(RegistrationError, match="without an event type, and would register nothing: write @outbox"):
            each()
    with pytest.raises(RegistrationError, match="class View, which is no event: decorate it"):
        outbox.on(View)


class Inside(msgspec.Struct):
    x: int


def test_structs_and_attrs_classes_are_found_anywhere_in_an_argument_of_a_task() -> None:
    outbox = Outbox("postgresql://nowhere")

    @outbox.task
    def work(many: list[Inside], by_name: dict[str, Inside | None], none: Inside | None = None) -> None: ...

    found = work.event(many=[Inside(1)], by_name={"a": Inside(2), "b": None}).payload
    assert found == {"many": [{"x": 1}], "by_name": {"a": {"x": 2}, "b": None}}
    with pytest.raises(partbox.PublishError, match=r"wrong argument 'many.0': .*Expected `int`, got `str`"):
        work.event(many=[{"x": "secret"}], by_name={})

    @outbox.lifespan
    def lifespan() -> Iterator[type]:
        yield Inside

    with pytest.raises(RegistrationError, match=r"parameter 'held' of task '.*' cannot be read back: "):

        @outbox.task
        def bad(held: Holder) -> None: ...
