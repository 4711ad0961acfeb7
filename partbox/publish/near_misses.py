"""Texts for calls of `publish` that cannot be right: what was meant. They are looked for after an error only."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from partbox.classes import kind_of
from partbox.errors import PublishError
from partbox.events import Event
from partbox.events.event import NOT_GIVEN
from partbox.publish.integrations import is_connection
from partbox.publish.transaction_scope import TransactionScope

# Types of arguments that are no connection. For any other type the error of the adapters has the remedy.
_NO_CONNECTIONS = (str, bytes, int, float, Enum, Event, Mapping, list, tuple, type)


def explain_publish(call: str, conn: Any, event: Any, payload: Any) -> None:
    """Raise PublishError with what was meant if the arguments of `publish` are in the wrong order or incomplete.

    `call` is the name of the method."""
    remedy = f'outbox.{call}(conn, event), or outbox.{call}(conn, "OrderPlaced", payload)'
    if (problem := _find_connection_problem(call, conn, event, payload)) is None:
        problem, remedy = _find_event_problem(call, event, payload, remedy)
    _raise(problem, remedy)


def explain_publish_many(call: str, conn: Any, events: Any) -> None:
    """Raise PublishError with what was meant if the arguments of `publish_many` are wrong."""
    problem = _find_connection_problem(call, conn, events)
    if problem is None and (isinstance(events, str | Mapping) or not isinstance(events, Iterable)):
        problem = f"{call} was given no list of events, but {_describe(events)}"
    _raise(problem, f"outbox.{call}(conn, [event, …])")


def explain_task(call: str, task: str, conn: Any, *given: Any) -> None:
    """Raise PublishError with what was meant if the first argument of a task's `publish` is no connection."""
    problem = _find_connection_problem(f"task {task!r}", conn, *given)
    _raise(problem, f"task.{call}(conn, name=value, …)")


def _raise(problem: str | None, remedy: str) -> None:
    if problem is not None:
        raise PublishError(f"{problem}: {remedy}") from None


def _find_connection_problem(call: str, conn: Any, *others: Any) -> str | None:
    if any(map(is_connection, others)) and not is_connection(conn):
        return f"{call} was given the connection behind another argument"
    if isinstance(conn, TransactionScope):
        return "outbox.transaction() was not entered: write `with outbox.transaction() as conn:`, and then"
    if conn is NOT_GIVEN:
        return f"{call} was given no connection or session"
    cls: Any = type(conn)
    if isinstance(conn, _NO_CONNECTIONS) or kind_of(cls) is not None:
        return f"{call} was given no connection or session as its first argument, but {_describe(conn)}"
    return None


def _find_event_problem(call: str, event: Any, payload: Any, remedy: str) -> tuple[str | None, str]:
    if event is NOT_GIVEN:
        return f"{call} was given no event", remedy
    if isinstance(event, str | Enum | Event | type):
        return None, remedy
    if isinstance(payload, str):
        return f"{call} was given the event type behind the payload", remedy
    if isinstance(event, list | tuple):
        return f"{call} was given {_describe(event)}", f"outbox.{call.replace('publish', 'publish_many')}(conn, events)"
    if isinstance(event, Mapping):
        return f"{call} was given a payload without an event type", remedy
    if callable(getattr(event, call, None)):
        return f"{call} was given {_describe(event)}", f"task.{call}(conn, name=value, …)"
    return None, remedy


def _describe(given: Any) -> str:
    return f"the class {given.__qualname__}" if isinstance(given, type) else f"a value of type {type(given).__name__}"
