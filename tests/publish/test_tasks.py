"""Functions as tasks: their names, their options, the aggregate types that they join, what cannot be one."""

import asyncio
import enum
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

import dill
import psycopg
import pytest
from fast_depends import Depends
from reading import deliver, delivered

from partbox import Dead, Event, Outbox, supplied
from partbox.errors import PublishError, RegistrationError
from partbox.events import DeliveredEvent
from partbox.events.checks import TASK
from partbox.tasks import Task
from partbox.tasks.task import task_name_of


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


def test_a_task_is_called_like_its_function(outbox: Outbox) -> None:
    @outbox.task(name="add", max_attempts=3)
    def add(a: int, b: int = 2, *, event: DeliveredEvent | None = None) -> int:
        """Adds."""
        return a + b

    assert (add(1), add(1, 5), add.__name__, add.__doc__, add.name) == (3, 6, "add", "Adds.", "add")
    assert isinstance(add, Task)
    (row,) = outbox.handlers.build_table()
    assert (row.event_type, row.aggregate_type, row.handler, row.kind) == ("add", TASK, "add", "sync")
    assert row.place.split(":")[0].endswith("test_tasks.py")
    assert row.options["max_attempts"] == "3"


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


def test_a_task_that_joins_an_aggregate_type_still_takes_events_published_before(
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


def test_a_task_that_joins_an_aggregate_type_needs_an_unused_name_and_a_valid_type(outbox: Outbox) -> None:
    outbox.task(name="bill", aggregate_type="Order")(lambda: None)
    for second in (None, "Order", "Cart"):
        with pytest.raises(RegistrationError, match="has a handler"):
            outbox.task(name="bill", aggregate_type=second)(lambda: None)
    for wrong, says in (("*", "cannot have every aggregate type"), (7, "must be a str or an Enum"), ("", "must be")):
        with pytest.raises(RegistrationError, match=says):
            outbox.task(name="other", aggregate_type=wrong)(lambda: None)  # type: ignore[call-overload]
    assert {(row.event_type, row.aggregate_type) for row in outbox.handlers.build_table()} == {
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


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("aggregate_ids", "did you mean 'aggregate_id'?"),
        ("agregate_id", "did you mean"),
        ("zz", "there are aggregate_id,"),
    ],
)
def test_an_unknown_option_is_refused(outbox: Outbox, option: str, hint: str) -> None:
    @outbox.task(name="send")
    def send(n: int) -> None: ...

    wrong: dict[str, Any] = {option: "7"}
    with pytest.raises(PublishError, match=f"^task 'send' has no option '{option}': {hint}"):
        send.options(**wrong)


def test_the_aggregate_id_of_an_object_that_is_not_saved_yet_is_refused(
    outbox: Outbox, conn: psycopg.Connection[Any]
) -> None:
    @outbox.task(aggregate_type="Order")
    def send(n: int) -> None: ...

    with conn.transaction(), pytest.raises(PublishError, match="flush first"):
        send.options(aggregate_id=None).publish(conn, n=1)
    assert conn.execute("select count(*) from partbox.record").fetchone() == (0,)


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
    assert outbox.handlers.build_table()[0].kind == "async"
    await asyncio.to_thread(deliver, outbox, conn)
    assert got == [7, 1, 2]


def test_a_value_returned_by_a_task_has_a_meaning_only_if_it_is_an_outcome(
    outbox: Outbox, conn: psycopg.Connection[Any]
) -> None:
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
    assert task_name_of(deliver) == "reading.deliver"


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


@dataclass
class Size:
    width: int


def starred(*args: int) -> None: ...
def keywords(**more: int) -> None: ...
def positional(a: int, /) -> None: ...
def unannotated(a) -> None: ...  # type: ignore[no-untyped-def]
def unresolved(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def generator(a: int) -> Any:
    yield a


NO_TASKS: list[tuple[Any, dict[str, Any], str]] = [
    (starred, {}, r"has the parameter `\*args: int`: each parameter must be passable by name"),
    (keywords, {}, r"has the parameter `\*\*more: int`"),
    (positional, {}, r"has the parameter `a: int`"),
    (unannotated, {}, r"parameter 'a' of task .*unannotated' has no annotation: give it a type"),
    (unresolved, {}, r"an annotation of task .* cannot be resolved .*Nowhere"),
    (generator, {}, r"is a generator"),
    ("text", {}, r"'text' cannot be a task: give its name as in"),
    (Size, {}, r"cannot be a task: decorate a function"),
    (deliver, {}, r"has a type that cannot be checked"),
    (lambda: None, {"name": ""}, r"the name of a task must be a non-empty text, not ''"),
    (lambda: None, {"name": 7}, r"the name of a task must be a non-empty text, not 7"),
    (lambda: None, {"max_attemts": 7}, r"unknown option 'max_attemts': did you mean 'max_attempts'"),
    (lambda: None, {"transactional": True}, r"cannot be transactional: register a handler for that by outbox.on"),
]


def test_an_invalid_task_is_refused_at_registration(outbox: Outbox) -> None:
    for function, options, message in NO_TASKS:
        with pytest.raises(RegistrationError, match=message):
            outbox.task(**options)(function)
        assert outbox.handlers.build_table() == [], message


def test_hooks_see_the_events_of_tasks(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    seen: list[Event] = []
    outbox.before_publish(seen.extend)

    @outbox.task(name="send")
    def send(n: int) -> None: ...

    with conn.transaction():
        send.publish(conn, n="1")
    assert [(event.event_type, event.payload) for event in seen] == [("send", {"n": 1})]


def test_dependencies_of_a_task_are_filled_where_it_runs_and_are_no_arguments(
    outbox: Outbox, conn: psycopg.Connection[Any]
) -> None:
    told: list[str] = []

    @outbox.lifespan
    def lifespan() -> Iterator[str]:
        yield "mail.example.org"

    def mailer(state: str, event: DeliveredEvent) -> Iterator[str]:
        yield f"{state} for {event.event_type}"
        told.append("closed")

    @outbox.task(name="plain")
    def plain(to: str, by: Annotated[str, Depends(mailer)], urgent: bool = False) -> None:
        told.append(f"{to} by {by}, {urgent}")

    @outbox.task(name="async")
    async def later(event: DeliveredEvent, *, to: str, by: str = Depends(lambda state: state)) -> None:
        told.append(f"{to} by {by} at attempt {event.attempt}")

    with pytest.raises(PublishError, match="has no argument 'by'"):
        plain.publish(conn, to="ada", by="hand")

    async def mailer_async() -> str:
        return "never"

    def wrong(by: Annotated[str, Depends(mailer_async)]) -> None: ...

    with pytest.raises(RegistrationError, match=r"mailer_async .*, which is async: make the handler an async def"):
        outbox.task(wrong)
    with conn.transaction():
        plain.publish(conn, to="ada", urgent=True)
        later.publish(conn, to="bob")
    assert outbox.drain()
    assert sorted(told) == [
        "ada by mail.example.org for plain, True",
        "bob by mail.example.org at attempt 1",
        "closed",
    ]
    plain("ada", "hand")
    assert told[-1] == "ada by hand, False"


class Client:
    """A class whose objects are not JSON."""

    host = "mail.example.org"


@dataclass
class Mailer:
    host: str = "mail.example.org"


async def client() -> AsyncIterator[Client]:
    yield Client()


def mailer() -> Iterator[Mailer]:
    yield Mailer()


@pytest.mark.parametrize("lifespan", [client, mailer])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_task_gets_the_state_of_the_lifespan_and_publish_takes_none(
    outbox: Outbox, conn: psycopg.Connection[Any], lifespan: Any, is_first: bool
) -> None:
    State: Any = Client if lifespan is client else Mailer
    told: list[Any] = []
    if is_first:
        outbox.lifespan(lifespan)

    @outbox.task(name="plain")
    def plain(to: str, state: State, times: int = 1) -> None:
        told.append((to, state.host, times))

    @outbox.task(name="async")
    async def later(event: DeliveredEvent, to: str, *, state: State = supplied) -> None:
        told.append((to, state.host, event.state is state))

    if not is_first:
        outbox.lifespan(lifespan)
    with conn.transaction():
        plain.publish(conn, "ada", times=2)
        later.publish(conn, to="bob")
        with pytest.raises(PublishError, match="has no argument 'state': it takes to, times"):
            plain.publish(conn, to="ada", state=State())
    assert [event.payload for event in delivered(conn)] == [{"to": "ada", "times": 2}, {"to": "bob"}]
    assert outbox.drain()
    assert sorted(told, key=str) == [("ada", "mail.example.org", 2), ("bob", "mail.example.org", True)]
    assert {row.options["needs"] for row in outbox.handlers.build_table()} == {State.__name__}


def test_a_task_that_asks_for_a_state_that_no_lifespan_yields_is_refused(outbox: Outbox) -> None:
    @outbox.task(name="mail")
    def mail(to: str, state: Client) -> None: ...

    with pytest.raises(RegistrationError, match=r"mail .* asks for Client, .* no lifespan yields"):
        outbox.drain()
    with pytest.raises(RegistrationError, match="has a type that cannot be checked"):
        outbox.lifespan(mailer)
    assert outbox.handlers.process_lifespan is None

    other = Outbox(outbox.dsn)
    other.lifespan(mailer)
    with pytest.raises(RegistrationError, match="asks for Client as 'state', and the lifespan yields Mailer: annotate"):

        @other.task
        def mails(to: str, state: Client = supplied) -> None: ...


def test_a_state_of_a_builtin_class_is_passed_only_where_it_is_marked(
    outbox: Outbox, conn: psycopg.Connection[Any]
) -> None:
    told: list[Any] = []

    @outbox.lifespan
    def lifespan() -> Iterator[str]:
        yield "mail.example.org"

    @outbox.task
    def mail(to: str, by: str = supplied) -> None:
        told.append((to, by))

    with conn.transaction():
        mail.publish(conn, to="ada")
    assert outbox.drain()
    assert told == [("ada", "mail.example.org")]
    assert repr(supplied) == "partbox.supplied"


def test_a_task_that_asks_for_the_state_runs_in_worker_processes(dsn: str, conn: psycopg.Connection[Any]) -> None:
    """Its handler is pickled with the class of the state."""
    outbox = Outbox(dsn)

    @outbox.task(name="mail")
    def mail(to: str, state: Mailer) -> None: ...

    before = mail.runner
    outbox.lifespan(mailer)
    copied = dill.loads(dill.dumps(mail.runner))
    assert (copied.state, copied.arguments.states) == (Mailer, {"state": Mailer})
    assert (before.arguments.states, mail.runner.arguments.states) == ({}, {"state": Mailer})
