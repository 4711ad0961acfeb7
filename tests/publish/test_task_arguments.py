"""The arguments of tasks are checked when a task is published and rebuilt when it is delivered."""

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field
from reading import count, deliver, delivered
from run_size import examples

from partbox import Outbox
from partbox.errors import PayloadError, PublishError
from partbox.events import DeliveredEvent
from partbox.events.checks import TASK
from partbox.tasks.arguments import TaskArguments

NOW = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)


class Colour(enum.Enum):
    RED = "red"


class Address(BaseModel):
    street: str
    number: int = Field(alias="no")


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    at: datetime
    id: UUID


@dataclass
class Size:
    width: int
    height: int


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


def test_arguments_come_back_as_their_annotated_types(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    got: list[dict[str, Any]] = []

    @outbox.task
    def everything(
        text: str, number: int, share: float, id: UUID, at: datetime, day: date, span: timedelta, price: Decimal,
        colour: Colour, address: Address, strict: Strict, size: Size, tags: set[str], pair: tuple[int, str],
        by_id: dict[UUID, Address], mode: Literal["a", "b"], nothing: str | None, raw: bytes, self: int, copy: str,
    ) -> None:  # fmt: skip
        got.append({name: value for name, value in locals().items() if name != "got"})

    given = {
        "text": "ünï", "number": 7, "share": 0.5, "id": UUID(int=7), "at": NOW, "day": date(2024, 2, 29),
        "span": timedelta(seconds=1.5), "price": Decimal("1.10"), "colour": Colour.RED,
        "address": Address(street="Elm", no=1), "strict": Strict(at=NOW, id=UUID(int=8)), "size": Size(1, 2),
        "tags": {"x", "y"}, "pair": (1, "z"), "by_id": {UUID(int=9): Address(street="Oak", no=2)}, "mode": "a",
        "nothing": None, "raw": b"bytes", "self": 1, "copy": "named as a method of models",
    }  # fmt: skip
    with conn.transaction():
        everything.publish(conn, **given)
    assert deliver(outbox, conn) == [None]
    assert got == [given]
    (event,) = delivered(conn)
    assert (event.event_type, event.aggregate_type, event.aggregate_id) == (everything.name, TASK, None)
    assert event.payload["address"] == {"street": "Elm", "no": 1}


def test_a_default_left_out_is_that_of_the_function_at_delivery(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    got: list[Any] = []

    @outbox.task
    def send(email: str, retries: int = 3) -> None:
        got.append((email, retries))

    with conn.transaction():
        send.publish(conn, email="a@b")
        send.publish(conn, email="c@d", retries="5")
    deliver(outbox, conn)
    assert got == [("a@b", 3), ("c@d", 5)]
    assert delivered(conn)[0].payload == {"email": "a@b"}


def test_a_parameter_of_the_events_type_gets_the_event(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    got: list[Any] = []

    @outbox.task
    def send(about: DeliveredEvent, event: str) -> None:
        got.append((about.idempotency_key, about.attempt, event))

    with conn.transaction():
        send.options(idempotency_key="k").publish(conn, event="an ordinary argument")
        with pytest.raises(PublishError, match="has no argument 'about': it takes event"):
            send.publish(conn, about=None, event="x")
    deliver(outbox, conn)
    assert got == [("k", 1, "an ordinary argument")]


def test_a_task_may_ask_for_its_event_however_the_annotation_is_written(
    outbox: Outbox, conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """Under `from __future__ import annotations` every annotation is a text."""
    program = """
from __future__ import annotations

import typing
from typing import Annotated, Optional

import partbox
from partbox import DeliveredEvent


def plain(n: int, event: DeliveredEvent) -> None:
    got["plain"] = event, n

def by_module(n: int, event: partbox.DeliveredEvent) -> None:
    got["by_module"] = event, n

def optional(n: int, event: Optional[DeliveredEvent] = None) -> None:
    got["optional"] = event, n

def united(n: int, *, event: "DeliveredEvent | None" = None) -> None:
    got["united"] = event, n

def noted(n: int, event: Annotated[DeliveredEvent, "the event"]) -> None:
    got["noted"] = event, n

async def awaited(n: int, event: DeliveredEvent) -> None:
    got["awaited"] = event, n
"""
    got: dict[str, tuple[DeliveredEvent, int]] = {}
    scope: dict[str, Any] = {"got": got, "__name__": "annotated_shop"}
    exec(compile(program, str(tmp_path / "annotated_shop.py"), "exec"), scope)
    names = ["plain", "by_module", "optional", "united", "noted", "awaited"]
    with conn.transaction():
        for number, name in enumerate(names):
            outbox.task(name=name)(scope[name]).publish(conn, n=number)
    deliver(outbox, conn)
    assert {name: (event.event_type, n) for name, (event, n) in got.items()} == {
        name: (name, number) for number, name in enumerate(names)
    }


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"n": 1}, r"^task 'send' lacks the argument 'email': give it$"),
    ({}, r"^task 'send' lacks the argument 'email': give it \(and 1 more\)$"),
    ({"email": "a", "n": 1, "mail": "b"}, r"^task 'send' has no argument 'mail': it takes email, n, size, share$"),
    ({"email": 5, "n": 1}, r"^task 'send' has a wrong argument 'email': Input should be a valid string$"),
    ({"email": "a", "n": "secret"}, r"^task 'send' has a wrong argument 'n': Input should be a valid integer"),
    ({"email": "a", "n": 1, "size": {"width": 1}}, r"has a wrong argument 'size.height': Field required"),
    ({"email": "a", "n": 1, "size": {"width": 1, "height": "x"}}, r"has a wrong argument 'size.height': "),
    ({"email": "a", "n": 1, "share": float("nan")}, r"^task 'send' could not be delivered, .* argument 'share': "),
    ({"email": "a", "n": 2**70}, r"an integer is beyond 64 bits"),
    ({"email": "\0", "n": 1}, r"a NUL character"),
]


async def test_wrong_arguments_are_refused_and_nothing_is_written(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    @outbox.task(name="send")
    def send(email: str, n: int, size: Size | None = None, share: float = 0.0) -> None: ...

    async with await psycopg.AsyncConnection.connect(dsn) as app:
        for arguments, message in WRONG:
            with conn.transaction():
                with pytest.raises(PublishError, match=message) as caught:
                    send.publish(conn, **arguments)
                assert "secret" not in str(caught.value)
            with pytest.raises(PublishError, match=message):
                await send.publish_async(app, **arguments)
            await app.commit()
            assert count(conn) == 0, message


def test_an_argument_that_cannot_be_restored_from_json_is_refused_when_published(
    outbox: Outbox, conn: psycopg.Connection[Any]
) -> None:
    class Renamed(BaseModel):
        street: str = Field(serialization_alias="strasse")

    def model(address: Any) -> None: ...

    model.__annotations__["address"] = Renamed
    task = outbox.task(name="model")(model)

    @outbox.task(name="raw")
    def raw(data: bytes) -> None: ...

    with conn.transaction():
        with pytest.raises(PublishError, match=r"task 'model' could not be delivered, as its JSON .*address.street"):
            task.publish(conn, address=Renamed(street="Elm"))
        with pytest.raises(PublishError, match=r"argument of task 'raw' cannot be written as JSON .*Base64Bytes"):
            raw.publish(conn, data=b"\xff")
    assert count(conn) == 0


def test_an_event_that_does_not_fit_its_task_any_more_is_dead_without_its_values_in_the_error(
    outbox: Outbox, conn: psycopg.Connection[Any]
) -> None:
    @outbox.task(name="send")
    def send(n: int) -> None: ...

    for payload in ({"n": "secret"}, {"m": 1}, [1], None, {"n": 1, "m": "secret"}):
        with conn.transaction():
            outbox.publish(conn, "send", payload, aggregate_type=TASK)
    handler = outbox.handlers.build_routes("default", outbox.settings)["send", TASK]
    assert handler is not None
    for event in delivered(conn):
        with pytest.raises(PayloadError, match="does not fit task 'send'") as caught:
            handler.call(event)
        assert "secret" not in str(caught.value)


def both(a: Decimal, b: list[datetime], c: dict[str, float], d: int | str | None) -> None: ...


@settings(max_examples=examples(200))
@given(
    a=st.decimals(allow_nan=False, allow_infinity=False),
    b=st.lists(st.datetimes(timezones=st.just(UTC))),
    c=st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)),
    d=st.none() | st.text() | st.integers(-(2**63), 2**63 - 1),
)
def test_arguments_survive_the_way_through_json(a: Decimal, b: list[datetime], c: dict[str, float], d: Any) -> None:
    arguments = TaskArguments(both, "both")
    payload = arguments.build_payload({"a": a, "b": b, "c": c, "d": d})

    class Stub:
        def __init__(self) -> None:
            self.payload = payload

    assert arguments.from_event(Stub()) == {"a": a, "b": b, "c": c, "d": d}  # type: ignore[arg-type]
