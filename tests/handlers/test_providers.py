"""What providers of fast-depends give to handlers."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import fastapi
import pytest
from fast_depends import Depends, dependency_provider
from needing import Placed, State, event_in, handler_of, lifespan
from parcels import pack, unpack
from psycopg import Connection

import partbox
from partbox import DeliveredEvent, Outbox, RegistrationError
from partbox.testing import delivered

if TYPE_CHECKING:
    from elsewhere import Unknown  # type: ignore[import-not-found]


class Session:
    """What a provider gives; `told` is what happened, in order."""

    def __init__(self, told: list[str]) -> None:
        self.told = told


told: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_told() -> None:
    told.clear()


def session(state: Any) -> Iterator[Session]:
    told.append(f"open in {getattr(state, 'name', None)}")
    try:
        yield Session(told)
    except LookupError:
        told.append("roll back")
        raise
    finally:
        told.append("close")


async def session_async(state: Any) -> AsyncIterator[Session]:
    for found in session(state):
        await asyncio.sleep(0)
        yield found


def repository(opened: Annotated[Session, Depends(session)]) -> str:
    return f"over {opened.told[-1]}"


def number(event: DeliveredEvent) -> int:
    return event.attempt


@pytest.fixture
def outbox() -> Outbox:
    return Outbox("postgresql://nowhere")


def test_dependencies_are_created_once_for_each_event_and_closed_after_the_handler(
    outbox: Outbox,
) -> None:
    outbox.lifespan(lifespan)

    @outbox.on(Placed)
    def handler(
        db: Annotated[Session, Depends(session)],
        order: Placed,
        state: State,
        over: Annotated[str, Depends(repository)],
        event: DeliveredEvent,
        *,
        attempt: Annotated[int, Depends(number)],
    ) -> None:
        told.append(f"{order} {state.name} {over} {event.attempt} {attempt} {db.told is told}")

    call = handler_of(outbox).call
    for _ in range(2):
        call(event_in(State("shop")))
    assert told == ["open in shop", "Placed(order_id=7) shop over open in shop 1 1 True", "close"] * 2


def test_an_async_handler_may_have_providers_of_every_kind(outbox: Outbox) -> None:
    async def awaited(event: DeliveredEvent) -> int:
        await asyncio.sleep(0)
        return event.attempt

    @outbox.on(Placed)
    async def handler(
        order: Placed,
        db: Annotated[Session, Depends(session_async)],
        blocking: Annotated[Session, Depends(session)],
        count: Annotated[int, Depends(awaited)],
        text: str = Depends(lambda: "by default"),
    ) -> str:
        await asyncio.sleep(0)
        told.append(f"{order} {count} {text}")
        return "done"

    assert asyncio.run(handler_of(outbox).call(event_in(None))) == "done"
    opened = "open in None"
    assert told == [opened, opened, "Placed(order_id=7) 1 by default", "close", "close"]


@pytest.mark.parametrize("is_async", [False, True])
def test_resources_opened_by_a_provider_are_closed_when_the_handler_raises(outbox: Outbox, is_async: bool) -> None:
    def handler(event: DeliveredEvent, db: Annotated[Session, Depends(session)]) -> None:
        raise LookupError("no")

    async def handler_async(event: DeliveredEvent, db: Annotated[Session, Depends(session_async)]) -> None:
        raise LookupError("no")

    outbox.on("Placed")(handler_async if is_async else handler)
    call = handler_of(outbox).call
    with pytest.raises(LookupError):
        asyncio.run(call(event_in(None))) if is_async else call(event_in(None))
    assert told == (["open in None", "close"] if is_async else ["open in None", "roll back", "close"])


def test_no_provider_is_called_for_an_unreadable_event(outbox: Outbox) -> None:
    @outbox.on("Placed")
    def handler(order: Placed, db: Annotated[Session, Depends(session)]) -> None: ...

    with pytest.raises(partbox.PayloadError):
        handler_of(outbox).call(delivered("Placed", {"order_id": "none"}))
    assert told == []


def test_a_transactional_handler_has_providers_too_and_they_may_take_its_connection(outbox: Outbox) -> None:
    outbox.lifespan(lifespan)

    def orders(conn: Connection[Any], state: State) -> str:
        return f"orders over {conn} of {state.name}"

    @outbox.on(Placed, transactional=True)
    def handler(over: Annotated[str, Depends(orders)], order: Placed, conn: "Connection[Any]", state: State) -> None:
        told.append(f"{order} {conn} {over}")

    handler_of(outbox).call(event_in(State("shop")), "the connection")
    assert told == ["Placed(order_id=7) the connection orders over the connection of shop"]


def test_a_test_can_override_a_provider_with_fast_depends(outbox: Outbox) -> None:
    @outbox.on("Placed")
    def handler(event: DeliveredEvent, over: Annotated[str, Depends(repository)]) -> None:
        told.append(over)

    call = handler_of(outbox).call
    with dependency_provider.scope(session, lambda: Session(["a stand-in"])):
        call(event_in(None))
    with dependency_provider.scope(repository, lambda: "nothing"):
        call(event_in(None))
    assert told == ["over a stand-in", "nothing"]


def test_a_registration_reaches_a_worker_process_with_its_dependencies(outbox: Outbox) -> None:
    outbox.lifespan(lifespan)

    @outbox.on(Placed)
    def handler(order: Placed, state: State, attempt: Annotated[int, Depends(lambda event: event.attempt)]) -> str:
        return f"{order.order_id} {state.name} {attempt}"

    there = Outbox("postgresql://nowhere")
    there.handlers = unpack(pack(outbox.handlers))
    assert handler_of(there).call(event_in(State("there"))) == "7 there 1"


async def later(event: DeliveredEvent) -> int:
    return 1


class Closer:
    async def __call__(self) -> int:
        return 1


def needs_later(value: Annotated[int, Depends(later)]) -> int:
    return value


def needs_more(event: DeliveredEvent, region: str) -> str:
    return region


def shadowed(state: Annotated[Session, Depends(session)]) -> Session:
    return state


def unresolved(wanted: "Unknown") -> None: ...


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        (
            later,
            r"wrong .* is sync and depends on test_providers.later .*, which is async: make the handler an as",
        ),
        (session_async, "is sync and depends on test_providers.session_async .*, which is async"),
        (needs_later, "is sync and depends on test_providers.later .*, which is async"),
        (Closer(), "is sync and depends on test_providers.Closer .*, which is async"),
        (
            needs_more,
            r"needs_more \(.*\), on which .*wrong .* depends, takes 'region', which nothing provides: a provider may",
        ),
        (dict, r"builtins.dict .*, on which .*wrong .* depends, does not reveal its parameters: write a function"),
        (shadowed, "shadowed .*, on which .* would get the handler's 'state' and not what its Depends says: give that"),
        (unresolved, "the annotation of 'wanted' of .*unresolved .* cannot be resolved"),
    ],
)
def test_a_provider_that_cannot_work_is_refused_at_registration(outbox: Outbox, provider: Any, said: str) -> None:
    def wrong(event: DeliveredEvent, value: Annotated[Any, Depends(provider)]) -> None: ...

    with pytest.raises(RegistrationError, match=said) as refused:
        outbox.on("Placed")(wrong)
    assert "\n" not in str(refused.value)
    assert outbox.handlers.build_table() == []


def test_an_unresolvable_annotation_is_reported_before_a_wrong_number_of_parameters(outbox: Outbox) -> None:
    def wrong(event: DeliveredEvent, value: "Annotated[Unknown, Depends(later)]") -> None: ...

    with pytest.raises(RegistrationError, match=r"annotation of 'value' of .*wrong .* cannot be resolved .*'Unknown'"):
        outbox.on("Placed")(wrong)


def test_a_batch_handler_gets_the_state_and_its_dependencies_once_for_a_list(outbox: Outbox) -> None:
    got: list[Any] = []
    outbox.lifespan(lifespan)

    @outbox.on_batch(Placed)
    def handler(state: State, orders: list[Placed], asked: Annotated[int, Depends(lambda events: len(events))]) -> None:
        got.append((state, orders, asked))

    state = State("here")
    handler_of(outbox).call([event_in(state), event_in(state)])
    assert got == [(state, [Placed(7), Placed(7)], 2)]


def test_depends_of_fastapi_is_refused_with_the_depends_to_use_instead(outbox: Outbox) -> None:
    def wrong(event: DeliveredEvent, value: Annotated[int, fastapi.Depends(number)]) -> None: ...
    def by_default(event: DeliveredEvent, value: int = fastapi.Depends(number)) -> None: ...

    for handler in (wrong, by_default):
        with pytest.raises(
            RegistrationError, match="by the Depends of FastAPI, which is for requests: import Depends from fast_d"
        ):
            outbox.on("Placed")(handler)


def test_the_routing_table_says_what_a_handler_needs(outbox: Outbox) -> None:
    @outbox.on("Placed")
    def handler(
        event: DeliveredEvent,
        state: State,
        by: Annotated[str, Depends(repository)],
        at: Annotated[int, Depends(number)],
    ) -> None: ...

    @outbox.on("Paid")
    def other(event: DeliveredEvent) -> None: ...

    outbox.lifespan(lifespan)
    needs = {row.event_type: row.options.get("needs") for row in outbox.handlers.build_table()}
    assert needs == {"Placed": f"State, {__name__}.repository, {__name__}.number", "Paid": None}
