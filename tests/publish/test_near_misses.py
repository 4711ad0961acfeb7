"""A call of publish, of a task or of a decorator that cannot be right says in one line what was meant."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

import partbox
from partbox import Outbox, PublishError, RegistrationError
from partbox.publish.integrations import is_connection


@partbox.event(aggregate_type="Order", key="number")
@dataclass
class NearlyPlaced:
    number: int


ORDER = NearlyPlaced(7)
EITHER = r'outbox\.publish\(conn, event\), or outbox\.publish\(conn, "OrderPlaced", payload\)$'
WRONG: list[tuple[Callable[[Any, Any], object], str]] = [
    (lambda outbox, conn: outbox.publish(), f"^publish was given no connection or session: {EITHER}"),
    (lambda outbox, conn: outbox.publish(ORDER), f"as its first argument, but a value of type NearlyPlaced: {EITHER}"),
    (lambda outbox, conn: outbox.publish("OrderPlaced", {}), f"first argument, but a value of type str: {EITHER}"),
    (lambda outbox, conn: outbox.publish(ORDER, conn), f"the connection behind another argument: {EITHER}"),
    (lambda outbox, conn: outbox.publish("OrderPlaced", {}, conn), f"connection behind another argument: {EITHER}"),
    (lambda outbox, conn: outbox.publish(outbox.transaction(), ORDER), r"^outbox.transaction\(\) was not entered: wri"),
    (lambda outbox, conn: outbox.publish(conn), f"^publish was given no event: {EITHER}"),
    (lambda outbox, conn: outbox.publish(conn, event_type="A", payload=1), f"^publish was given no event: {EITHER}"),
    (lambda outbox, conn: outbox.publish(conn, {"total": 1}), f"a payload without an event type: {EITHER}"),
    (
        lambda outbox, conn: outbox.publish(conn, {"total": 1}, "OrderPlaced"),
        f"event type behind the payload: {EITHER}",
    ),
    (lambda outbox, conn: outbox.publish(conn, [ORDER]), r"of type list: outbox\.publish_many\(conn, events\)$"),
    (lambda outbox, conn: outbox.publish(conn, outbox.task(name="a")(print_mail)), r"of type Task: task\.publish\(co"),
    (
        lambda outbox, conn: outbox.publish_many(conn, ORDER),
        r"no list of events, but a .* NearlyPlaced: outbox\.publis",
    ),
    (
        lambda outbox, conn: outbox.publish_many([ORDER], conn),
        r"behind another argument: outbox\.publish_many\(conn, \[",
    ),
]


def print_mail(email: str, times: int = 1) -> None:
    """Stand for a task of which only the signature is read."""


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


@pytest.mark.parametrize(("call", "says"), WRONG)
def test_a_call_of_publish_that_cannot_be_right_says_what_was_meant(
    outbox: Outbox, conn: psycopg.Connection[Any], call: Callable[[Any, Any], object], says: str
) -> None:
    with conn.transaction():
        with pytest.raises(PublishError, match=says) as refused:
            call(outbox, conn)
        assert "\n" not in str(refused.value)
        assert refused.value.__suppress_context__
        assert outbox.publish(conn, ORDER) is not None


async def test_an_asynchronous_call_that_cannot_be_right_says_what_was_meant(outbox: Outbox, dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        wrong: Any = outbox.publish_async
        with pytest.raises(PublishError, match=r"connection behind another argument: outbox\.publish_async\(conn, ev"):
            await wrong(ORDER, conn)
        with pytest.raises(PublishError, match=r"type list: outbox\.publish_many_async\(conn, events\)$"):
            await wrong(conn, [ORDER])
        with pytest.raises(PublishError, match=r"^publish_async was given no connection or session"):
            await wrong(ORDER)


def test_a_task_that_is_published_wrongly_says_what_was_meant(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    mail: Any = outbox.task(name="mail")(print_mail)
    with conn.transaction():
        for call, says in (
            (
                lambda: mail.publish(email="ada"),
                r"^task 'mail' was given no connection or session: task\.publish\(conn,",
            ),
            (
                lambda: mail.publish("ada"),
                r"no connection or session as its first argument, but a value of type str: t",
            ),
            (lambda: mail.publish("ada", conn), r"^task 'mail' was given the connection behind another argument: task"),
            (lambda: mail.publish(conn, email=1), r"has a wrong argument 'email': Input should be a valid string"),
            (
                lambda: mail.publish(conn, "ada", 2, 3),
                r"was given 3 arguments by position, and takes email, times: pass",
            ),
            (lambda: mail.publish(conn, "ada", email="bob"), r"was given 'email' twice: pass it by name alone"),
        ):
            with pytest.raises(PublishError, match=says):
                call()
        assert mail.event("ada", times=2).payload == {"email": "ada", "times": 2}


def test_a_decorator_that_would_register_nothing_says_what_was_meant(outbox: Outbox) -> None:
    def handler(event: object) -> None: ...

    lax: Any = outbox
    for call, says in (
        (lambda: lax.on()(handler), r'^@outbox\.on\(\) has no event type: write @outbox\.on\("OrderPlaced"\), or'),
        (lambda: lax.on_batch()(handler), r"^@outbox\.on_batch\(\) has no event type"),
        (lambda: lax.on(handler), r"@outbox\.on stands above .*handler without an event type"),
        (lambda: lax.on("A", handler), r"handler as its aggregate type, .* write @outbox\.on\('A'\) above the handler"),
        (lambda: lax.on(["A", "B"])(handler), r"was given a list: it takes one event type"),
        (lambda: lax.on(ORDER)(handler), r"was given an instance of NearlyPlaced: write @outbox\.on\(NearlyPlaced\)$"),
        (lambda: lax.register("A", handler), r"'A' is no handler: the handler comes first, outbox\.register\(handler,"),
        (lambda: lax.task("mail")(print_mail), r"give its name as in @outbox\.task\(name='mail'\)$"),
    ):
        with pytest.raises(RegistrationError, match=says):
            call()
    assert outbox.handlers.build_table() == []


def test_only_connections_and_sessions_count_as_connections(conn: psycopg.Connection[Any]) -> None:
    assert is_connection(conn)
    assert not any(map(is_connection, (conn.cursor(), None, "postgresql://", {}, ORDER, psycopg.Connection)))
