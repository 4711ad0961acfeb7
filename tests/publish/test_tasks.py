"""Typed tasks: arguments are checked when a task is published and rebuilt when it is delivered."""

import asyncio
import enum
import os
import subprocess
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import psycopg
import pytest
from effort import examples
from forked import Forks
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field
from reading import count, delivered

from partbox import Dead, Event, Outbox
from partbox.errors import PayloadError, PublishError, RegistrationError
from partbox.events import DeliveredEvent
from partbox.events.reserved import TASK
from partbox.tasks import Task
from partbox.tasks.arguments import Arguments
from partbox.tasks.task import name_of

NOW = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)

PROGRAM = """
import os
import sys
from decimal import Decimal

import psycopg
from pydantic import BaseModel

from partbox import Outbox
from partbox.events import DeliveredEvent

outbox = Outbox()


class Address(BaseModel):
    street: str


def note(*words):
    with open(sys.argv[1], "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")


@outbox.task
def greet(name: str, address: Address, price: Decimal, event: DeliveredEvent):
    assert type(address) is Address, type(address)
    note("greeted", name, address.street, price.quantize(Decimal("0.01")), event.attempt, os.getpid())
    with outbox.transaction() as tx:
        follow.publish(tx, name=name)


@outbox.task(name="follow-up")
async def follow(name: str):
    note("followed", name)


def made():
    @outbox.task
    def nested(name: str):
        note("nested", name)
        if name == "Bob":
            with outbox.transaction() as tx:
                again.options(idempotency_key="again").publish(tx, name="Cy")

    @outbox.task
    def again(name: str):
        note("again", name)

    return nested


nested = made()

if __name__ == "__main__":
    with psycopg.connect(outbox.dsn) as conn:
        greet.publish(conn, name="Ada", address={"street": "Elm"}, price="1.5")
        nested.publish(conn, name="Bob")
        conn.commit()
    print(greet.name, nested.name, os.getpid())
    sys.exit(outbox.run(processes=2, until_empty=True))
"""


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


def deliver(outbox: Outbox, conn: psycopg.Connection[Any]) -> list[Any]:
    """Hand every record of the log to its handler, as a worker would; the outcomes."""
    routes = outbox.handlers.routes("default", outbox.settings)
    outcomes = []
    for event in delivered(conn):
        handler = routes[event.event_type, event.aggregate_type]
        assert handler is not None
        outcomes.append(asyncio.run(handler.call(event)) if handler.is_async else handler.call(event))
    return outcomes


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


def test_a_task_is_called_like_its_function(outbox: Outbox) -> None:
    @outbox.task(name="add", max_attempts=3)
    def add(a: int, b: int = 2, *, event: DeliveredEvent | None = None) -> int:
        """Adds."""
        return a + b

    assert (add(1), add(1, 5), add.__name__, add.__doc__, add.name) == (3, 6, "add", "Adds.", "add")
    assert isinstance(add, Task)
    (row,) = outbox.handlers.table()
    assert (row.event_type, row.aggregate_type, row.handler, row.kind) == ("add", TASK, "add", "sync")
    assert row.place.split(":")[0].endswith("test_tasks.py")
    assert row.options["max_attempts"] == "3"


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


def test_however_the_annotation_is_written_a_task_may_ask_for_its_event(
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


class Type(enum.Enum):
    ORDER = "Order"


@pytest.mark.parametrize("joined", ["Order", Type.ORDER])
def test_a_task_that_joins_an_aggregate_type_keeps_the_order_of_the_aggregates_other_events(
    outbox: Outbox, conn: psycopg.Connection[Any], joined: Any
) -> None:
    seen: list[str] = []
    failed: list[bool] = []

    @outbox.on("OrderPlaced", aggregate_type="Order", retry="fixed:1ms")
    def place(event: DeliveredEvent) -> None:
        if event.aggregate_id == "7" and not failed:
            failed.append(True)
            raise ValueError("not yet")
        seen.append(f"{event.aggregate_id}: placed")

    @outbox.task(name="bill", aggregate_type=joined)
    def bill(amount: int, event: DeliveredEvent) -> None:
        seen.append(f"{event.aggregate_id}: {event.aggregate_type} is billed {amount}")

    with conn.transaction():
        for order in ("7", "8"):
            outbox.publish(conn, "OrderPlaced", None, aggregate_type="Order", aggregate_id=order)
            bill.options(aggregate_id=order).publish(conn, amount=5)
        bill.publish(conn, amount=6)
    assert outbox.drain(timeout=30)
    assert [each for each in seen if each.startswith("7")] == ["7: placed", "7: Order is billed 5"]
    assert [each for each in seen if each.startswith("8")] == ["8: placed", "8: Order is billed 5"]
    assert "None: Order is billed 6" in seen


def test_a_task_that_joins_still_takes_what_was_published_before_it_joined(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    before, after, got = Outbox(dsn), Outbox(dsn), []

    @before.task(name="bill")
    def bill(amount: int) -> None: ...

    @after.task(name="bill", aggregate_type="Order")
    def bill_the_order(amount: int) -> None:
        got.append(amount)

    with conn.transaction():
        bill.publish(conn, amount=1)
        bill_the_order.publish(conn, amount=2)
    assert after.drain(timeout=30)
    assert sorted(got) == [1, 2]


def test_a_joined_task_has_its_name_alone_and_a_type_that_is_one(outbox: Outbox) -> None:
    outbox.task(name="bill", aggregate_type="Order")(lambda: None)
    for second in (None, "Order", "Cart"):
        with pytest.raises(RegistrationError, match="has a handler"):
            outbox.task(name="bill", aggregate_type=second)(lambda: None)
    for wrong, says in (("*", "cannot join every aggregate type"), (7, "must be a str or an Enum"), ("", "must be")):
        with pytest.raises(RegistrationError, match=says):
            outbox.task(name="other", aggregate_type=wrong)(lambda: None)  # type: ignore[call-overload]
    assert {(row.event_type, row.aggregate_type) for row in outbox.handlers.table()} == {
        ("bill", "Order"),
        ("bill", TASK),
    }


def test_options_set_the_fields_of_the_event(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    @outbox.task
    def send(n: int) -> None: ...

    later = send.options(aggregate_id="7", tenant_id="t", deliver_after=3600).options(headers={"a": "b"})
    keyed = later.options(idempotency_key="once", aggregate_id="8")
    with conn.transaction():
        assert isinstance(later.publish(conn, n=1), UUID)
        assert isinstance(keyed.publish(conn, n=2), UUID)
        assert keyed.publish(conn, n=3) is None
        assert len(outbox.publish_many(conn, [send.event(n=4), later.event(n=5)])) == 2
    first, second, third, fourth = delivered(conn)
    assert (first.aggregate_id, first.tenant_id, first.headers, first.idempotency_key) == ("7", "t", {"a": "b"}, None)
    assert (second.aggregate_id, second.idempotency_key, second.payload) == ("8", "once", {"n": 2})
    assert (third.aggregate_id, fourth.aggregate_id) == (None, "7")
    assert conn.execute("select count(available_at) from partbox.record").fetchone() == (3,)


@pytest.mark.parametrize("options", [{"aggregate_ids": "7"}, {"aggregate_type": "Order"}])
def test_an_unknown_option_is_refused(outbox: Outbox, options: dict[str, Any]) -> None:
    @outbox.task(name="send")
    def send(n: int) -> None: ...

    with pytest.raises(
        PublishError, match=f"task 'send' has no option '{next(iter(options))}': there are aggregate_id, "
    ):
        send.options(**options)


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


def test_what_json_cannot_give_back_is_refused_when_published(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    class Renamed(BaseModel):
        street: str = Field(serialization_alias="strasse")

    def model(address: Any) -> None: ...

    model.__annotations__["address"] = Renamed
    task = outbox.task(name="model")(model)

    @outbox.task(name="raw")
    def raw(data: bytes) -> None: ...

    with conn.transaction():
        with pytest.raises(PublishError, match=r"task 'model' could not be delivered, for in JSON it .*address.street"):
            task.publish(conn, address=Renamed(street="Elm"))
        with pytest.raises(PublishError, match=r"argument of task 'raw' has no form in JSON .*Base64Bytes"):
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
    handler = outbox.handlers.routes("default", outbox.settings)["send", TASK]
    assert handler is not None
    for event in delivered(conn):
        with pytest.raises(PayloadError, match="does not fit task 'send'") as caught:
            handler.call(event)
        assert "secret" not in str(caught.value)


async def test_async_functions_are_tasks_too(outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]) -> None:
    got: list[int] = []

    @outbox.task
    async def count_up(n: int) -> int:
        got.append(n)
        return n + 1

    async with await psycopg.AsyncConnection.connect(dsn) as app:
        assert isinstance(await count_up.publish_async(app, n=1), UUID)
        assert await count_up.options(idempotency_key="k").publish_async(app, n=2) is not None
        assert await count_up.options(idempotency_key="k").publish_async(app, n=3) is None
    assert await count_up(7) == 8
    assert outbox.handlers.table()[0].kind == "async"
    await asyncio.to_thread(deliver, outbox, conn)
    assert got == [7, 1, 2]


def test_only_an_outcome_means_something_of_what_a_task_returns(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    @outbox.task
    def send(dies: bool) -> Any:
        return Dead("no more") if dies else 42

    with conn.transaction():
        send.publish(conn, dies=True)
        send.publish(conn, dies=False)
    assert deliver(outbox, conn) == [Dead("no more"), None]


def test_the_default_name_is_module_and_function(outbox: Outbox) -> None:
    @outbox.task
    def send() -> None: ...

    assert send.name == "test_tasks.test_the_default_name_is_module_and_function.send"
    assert name_of(deliver) == "test_tasks.deliver"


def test_a_renamed_function_with_its_name_takes_what_was_published_before(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    before, after, got = Outbox(dsn), Outbox(dsn), []

    @before.task(name="emails.welcome")
    def send_welcome(email: str) -> None: ...

    @after.task(name="emails.welcome")
    def greet_by_mail(email: str) -> None:
        got.append(email)

    with conn.transaction():
        send_welcome.publish(conn, email="a@b")
    deliver(after, conn)
    assert got == ["a@b"]


def test_a_second_task_of_one_name_is_refused(outbox: Outbox) -> None:
    @outbox.task(name="send")
    def send() -> None: ...

    with pytest.raises(RegistrationError, match=r"'send' of partbox-task has a handler .*test_tasks.py:\d+"):
        outbox.task(name="send")(lambda: None)
    outbox.task(name="send", subscription="other")(lambda: None)


def starred(*args: int) -> None: ...
def keywords(**more: int) -> None: ...
def positional(a: int, /) -> None: ...
def unannotated(a) -> None: ...  # type: ignore[no-untyped-def]
def unresolved(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def generator(a: int) -> Any:
    yield a


NO_TASKS: list[tuple[Any, dict[str, Any], str]] = [
    (starred, {}, r"has the parameter `\*args: int`: each must have a name"),
    (keywords, {}, r"has the parameter `\*\*more: int`"),
    (positional, {}, r"has the parameter `a: int`"),
    (unannotated, {}, r"parameter 'a' of task .*unannotated' has no annotation: give it a type"),
    (unresolved, {}, r"an annotation of task .* cannot be resolved .*Nowhere"),
    (generator, {}, r"is a generator"),
    ("text", {}, r"'text' cannot be a task: decorate a function"),
    (Size, {}, r"cannot be a task: decorate a function"),
    (deliver, {}, r"has a type that cannot be checked"),
    (lambda: None, {"name": ""}, r"the name of a task must be a text, not ''"),
    (lambda: None, {"name": 7}, r"the name of a task must be a text, not 7"),
    (lambda: None, {"max_attemts": 7}, r"unknown option 'max_attemts': did you mean 'max_attempts'"),
    (lambda: None, {"transactional": True}, r"cannot be transactional: register a handler for that by outbox.on"),
]


def test_what_cannot_be_a_task_is_refused_at_registration(outbox: Outbox) -> None:
    for function, options, message in NO_TASKS:
        with pytest.raises(RegistrationError, match=message):
            outbox.task(**options)(function)
        assert outbox.handlers.table() == [], message


def test_hooks_see_the_events_of_tasks(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    seen: list[Event] = []
    outbox.before_publish(seen.extend)

    @outbox.task(name="send")
    def send(n: int) -> None: ...

    with conn.transaction():
        send.publish(conn, n="1")
    assert [(event.event_type, event.payload) for event in seen] == [("send", {"n": 1})]


def both(a: Decimal, b: list[datetime], c: dict[str, float], d: int | str | None) -> None: ...


@settings(max_examples=examples(200))
@given(
    a=st.decimals(allow_nan=False, allow_infinity=False),
    b=st.lists(st.datetimes(timezones=st.just(UTC))),
    c=st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)),
    d=st.none() | st.text() | st.integers(-(2**63), 2**63 - 1),
)
def test_arguments_survive_the_way_through_json(a: Decimal, b: list[datetime], c: dict[str, float], d: Any) -> None:
    arguments = Arguments(both, "both")
    payload = arguments.payload({"a": a, "b": b, "c": c, "d": d})

    class Stub:
        def __init__(self) -> None:
            self.payload = payload

    assert arguments.of(Stub()) == {"a": a, "b": b, "c": c, "d": d}  # type: ignore[arg-type]


def test_tasks_of_a_program_travel_to_its_worker_processes(dsn: str, tmp_path: Path, forks: Forks) -> None:
    ended = run(forks, tmp_path, dsn, PROGRAM)
    assert ended.returncode == 0, ended.stderr
    assert "Warning" not in ended.stderr
    *names, parent = ended.stdout.split()
    assert names == ["shop.greet", "shop.made.nested"]
    lines = (tmp_path / "notes").read_text().splitlines()
    greeted, pid = next(line for line in lines if line.startswith("greeted")).rsplit(" ", 1)
    assert (greeted, pid != parent) == ("greeted Ada Elm 1.50 1", True)
    assert sorted(line for line in lines if not line.startswith("greeted")) == [
        "again Cy",
        "followed Ada",
        "nested Bob",
    ]


def test_a_task_that_only_the_main_program_has_names_the_remedy(dsn: str, tmp_path: Path, forks: Forks) -> None:
    program = """
import sys
from partbox import Outbox

if __name__ == "__main__":
    outbox = Outbox(error_limit=300)

    @outbox.task
    def greet(name: str):
        pass

    import dill
    from partbox.tasks.runner import imported

    handlers = dill.dumps(outbox.handlers)
    del greet
    try:
        dill.loads(handlers)
    except Exception as error:
        print(type(error).__name__, error)
"""
    ended = run(forks, tmp_path, dsn, program)
    assert ended.stdout.startswith("RegistrationError there is no task __main__.greet in a worker process: "), ended


def test_a_program_publishes_what_a_worker_of_its_module_delivers(dsn: str, tmp_path: Path, forks: Forks) -> None:
    run(forks, tmp_path, dsn, PROGRAM.replace("sys.exit(outbox.run(processes=2, until_empty=True))", ""))
    worker = ["partbox", "worker", "shop:outbox", "--until-empty", "--processes=1"]
    environment = environ(dsn) | {"PYTHONPATH": str(tmp_path)}
    program = PROGRAM.replace("sys.argv[1]", repr(str(tmp_path / "notes")))
    (tmp_path / "shop.py").write_text(program)
    process = forks.start(*worker, cwd=tmp_path, env=environment)
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert "followed Ada" in (tmp_path / "notes").read_text()


def run(forks: Forks, folder: Path, dsn: str, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "shop.py").write_text(program)
    process = forks.start("python", str(folder / "shop.py"), str(folder / "notes"), cwd=folder, env=environ(dsn))
    out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.wait(), out, err)


def environ(dsn: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
    return kept | {"PARTBOX_DSN": dsn}
