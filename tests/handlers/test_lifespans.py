"""The lifespan of an outbox as it is registered, and the state that it gives to handlers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypedDict

import pytest
from needing import Placed, State, event_in, handler_of, lifespan
from psycopg import Connection

from partbox import DeliveredEvent, Outbox, RegistrationError

if TYPE_CHECKING:
    from elsewhere import Unknown  # type: ignore[import-not-found]


class Told(TypedDict):
    name: str


class Other: ...


async def other_async() -> AsyncIterator[Other]:
    yield Other()


@pytest.fixture
def outbox() -> Outbox:
    return Outbox("postgresql://nowhere")


def test_a_handler_that_asks_for_nothing_more_is_called_without_a_wrapper(outbox: Outbox) -> None:
    def plain(event): ...  # type: ignore[no-untyped-def]
    def annotated(event: DeliveredEvent) -> None: ...
    async def awaited(event: DeliveredEvent, retries: int = 3) -> None: ...

    outbox.lifespan(lifespan)
    for name, handler in {"A": plain, "B": annotated, "C": awaited}.items():
        outbox.on(name)(handler)
        assert handler_of(outbox, name).call is handler


@pytest.mark.parametrize("is_first", [True, False])
def test_the_state_is_passed_to_the_parameter_of_its_class_at_any_position(outbox: Outbox, is_first: bool) -> None:
    got: list[Any] = []

    def behind(order: Placed, state: State) -> None:
        got.append((order, state))

    def between(event: DeliveredEvent, state: State, order: Placed) -> None:
        got.append((order, state, event.attempt))

    async def before(state: State, event: DeliveredEvent, *, again: State) -> None:
        got.append((state is again, state, event.state))

    def placed(state: State, event: Any, /) -> None:
        got.append((event.payload, state))

    handlers: dict[str, Callable[..., Any]] = {"A": behind, "B": between, "C": before, "D": placed}
    if is_first:
        outbox.lifespan(lifespan)
    for name, handler in handlers.items():
        outbox.on(Placed if handler is behind else "Placed", name)(handler)
    if not is_first:
        outbox.lifespan(lifespan)
    state, order = State("here"), Placed(7)
    for name in handlers:
        result = outbox.handlers.build_routes("default", outbox.settings)["Placed", name].call(event_in(state))
        if result is not None:
            asyncio.run(result)
    assert got == [(order, state), (order, state, 1), (True, state, state), (order, state)]


def test_a_class_that_could_be_a_payload_is_the_state_once_a_lifespan_yields_it(outbox: Outbox) -> None:
    @outbox.on("Placed")
    def handler(event: DeliveredEvent, state: State) -> None: ...

    (before,) = outbox.handlers.build_table()
    assert before.options["payload"] == "State"
    outbox.lifespan(lifespan)
    (after,) = outbox.handlers.build_table()
    assert "payload" not in after.options


def test_a_state_may_be_of_any_type_that_the_lifespan_is_annotated_with(outbox: Outbox) -> None:
    @outbox.lifespan
    async def told_one() -> AsyncIterator[Told]:
        yield {"name": "x"}

    got = []

    @outbox.on("Placed")
    def handler(event: DeliveredEvent, state: Told) -> None:
        got.append(state)

    handler_of(outbox).call(event_in({"name": "x"}))
    assert got == [{"name": "x"}]


def test_a_state_without_a_lifespan_is_refused_when_the_handlers_are_resolved(outbox: Outbox) -> None:
    @outbox.on(Placed)
    def handler(order: Placed, state: State) -> None: ...

    said = r"handler .*test_lifespans.py.* asks for State, which no event provides and no lifespan yields: put @outbox"
    with pytest.raises(RegistrationError, match=said):
        outbox.handlers.build_routes("default", outbox.settings)
    with pytest.raises(RegistrationError, match=said):
        outbox.worker()

    @outbox.lifespan
    def untold():  # type: ignore[no-untyped-def]
        yield State("x")

    with pytest.raises(
        RegistrationError, match=r"no lifespan yields: .* annotated to yield it, as in -> Iterator.State"
    ):
        outbox.handlers.build_routes("default", outbox.settings)


def test_a_lifespan_that_yields_another_class_than_a_handler_asks_for_is_refused(outbox: Outbox) -> None:
    @outbox.on(Placed)
    def handler(order: Placed, state: State) -> None: ...

    def other() -> Iterator[Other]:
        yield Other()

    with pytest.raises(RegistrationError, match=r"asks for State, which no event provides: .* lifespan yields Other$"):
        outbox.lifespan(other)
    outbox.lifespan(lifespan)
    assert handler_of(outbox).call is not handler


class Callee:
    def __call__(self) -> Iterator[int]:
        yield 1


def plain() -> State:
    return State("x")


async def plain_async() -> State:
    return State("x")


def with_argument(outbox: Outbox) -> Iterator[State]:
    yield State("x")


def unknown() -> "Iterator[Unknown]":
    yield None


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            plain,
            r"test_lifespans.plain .* is no generator function, so it cannot be the lifespan: write a def or an async",
        ),
        (plain_async, "plain_async .* is no generator function"),
        (asynccontextmanager(other_async), "other_async .* is no generator function.* no @contextmanager above it"),
        (Callee(), "Callee .* is no generator function"),
        (5, "5 is no generator function"),
        (with_argument, "with_argument .* takes arguments, and a lifespan is called with none"),
        (unknown, "the annotation of the result of .*unknown .* cannot be resolved .*'Unknown'.*: import"),
    ],
)
def test_an_object_that_cannot_be_a_lifespan_is_refused(outbox: Outbox, function: Any, said: str) -> None:
    with pytest.raises(RegistrationError, match=said) as refused:
        outbox.lifespan(function)
    assert "\n" not in str(refused.value)
    outbox.lifespan(lifespan)  # nothing has changed


def test_a_second_lifespan_is_refused(outbox: Outbox) -> None:
    outbox.lifespan(lifespan)

    async def more() -> AsyncIterator[None]:
        yield

    with pytest.raises(
        RegistrationError, match=r"more .* cannot be a second lifespan beside needing.lifespan .*inside the first one$"
    ):
        outbox.lifespan(more)


def test_a_handler_that_asks_for_more_must_name_the_parameter_of_its_event(outbox: Outbox) -> None:
    outbox.lifespan(lifespan)

    def wrong(*events: Any, state: State) -> None: ...

    with pytest.raises(
        RegistrationError, match=r"wrong .* must name each parameter, as it asks for more than its event"
    ):
        outbox.on(Placed)(wrong)


def test_a_handler_with_a_connection_that_is_not_transactional_is_refused_at_registration(outbox: Outbox) -> None:
    def wrong(event: DeliveredEvent, conn: Connection[Any]) -> None: ...
    def wrong_too(event: DeliveredEvent, conn: Connection) -> None: ...  # type: ignore[type-arg]

    for handler in (wrong, wrong_too):
        with pytest.raises(
            RegistrationError, match=r"asks for .*Connection.*, which no event provides: ask for a DeliveredEvent"
        ):
            outbox.on("Placed")(handler)
