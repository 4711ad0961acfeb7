"""Ctrl-C at whatever line of a verb that pauses a subscription."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from partbox import Outbox
from partbox.db.operator import subscriptions as statements
from partbox.operations.subscriptions import InterruptedCommand, Subscriptions

VERBS = "partbox/operations/subscriptions.py"


@contextmanager
def interrupted_at(number: int) -> Iterator[None]:
    """Raise KeyboardInterrupt at the line or return of this number, of those of the verbs and of their `with`."""
    left = number

    def line(_: FrameType, event: str, __: Any) -> Any:
        nonlocal left
        # Not within an `except`: CPython 3.11 then may keep the exception that was handled for good.
        left -= event in ("line", "return") and sys.exc_info()[0] is None
        if left < 0:
            sys.settrace(None)  # as the command ignores what comes after the first signal
            raise KeyboardInterrupt
        return line

    def call(frame: FrameType, _: str, __: Any) -> Any:
        place, caller = frame.f_code.co_filename, frame.f_back.f_code.co_filename if frame.f_back else ""
        return line if place.endswith(VERBS) or (place.endswith("contextlib.py") and caller.endswith(VERBS)) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("verb", ["replay", "drop"])
def test_an_interrupt_at_any_line_leaves_no_subscription_paused_and_says_so(dsn, conn, monkeypatch, verb):
    outbox, done = Outbox(dsn), []
    act: Callable[[Subscriptions], Any] = {
        "replay": lambda subscriptions: subscriptions.replay("audit", from_id=1),
        "drop": lambda subscriptions: subscriptions.drop("audit"),
    }[verb]

    def noted(name: str) -> Callable[..., Any]:
        before = getattr(statements, name)

        def statement(*arguments: Any, **options: Any) -> Any:
            result = before(*arguments, **options)
            done.append(name)
            return result

        return statement

    for name in ("pause", verb):
        monkeypatch.setattr(statements, name, noted(name))
    with conn.transaction():
        outbox.publish(conn, "Step", 1, aggregate_type="A", aggregate_id="1")
    number, said = 0, set()
    while True:
        if not any(each.name == "audit" for each in outbox.subscriptions.list()):
            outbox.subscriptions.create("audit", "now")
        done.clear()
        try:
            with interrupted_at(number):
                act(outbox.subscriptions)
            break
        except KeyboardInterrupt as error:
            if done == ["pause"]:
                said.add((type(error), str(error)))
        assert not any(each.paused_at for each in outbox.subscriptions.list()), f"at {number}"
        number += 1
    assert said == {(InterruptedCommand, "subscription 'audit': nothing was changed, and delivery goes on")}
    assert done == ["pause", verb]
    assert sys.exc_info() == (None, None, None)
