"""The work that a failure costs: how often its text is searched for secrets, and its traceback is formatted."""

from collections.abc import Callable
from traceback import StackSummary
from typing import Any

import pytest
from contexts import context, row

from partbox.codecs import Codecs
from partbox.events import DeliveredEvent
from partbox.events.delivered import ClaimContext
from partbox.handlers import Handlers
from partbox.protocol import verdict


def fail(event: DeliveredEvent) -> None:
    raise RuntimeError(f"no such customer: {event.id}")


def count(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[str]:
    """The arguments of all calls of a function from now on."""
    calls, call = list[str](), getattr(owner, name)

    def counting(*given: Any) -> Any:
        calls.append(str(given[-1]))
        return call(*given)

    monkeypatch.setattr(owner, name, counting)
    return calls


@pytest.fixture
def fail_event() -> Callable[[int], verdict.Verdict]:
    """Let the handler fail with an event of this id, and return the verdict."""
    handlers = Handlers()
    handlers.register(fail, "Counted", name="h")
    endpoint = context(handlers=handlers).routes["Counted", "Key"]

    def run(number: int) -> verdict.Verdict:
        event = DeliveredEvent(row(number), ClaimContext(1, "default", Codecs(None)))
        with pytest.raises(RuntimeError) as raised:
            fail(event)
        found = endpoint.judge(event, raised.value)
        assert found is not None
        return found

    return run


def test_the_text_of_each_error_is_searched_for_secrets_once(
    fail_event: Callable[[int], verdict.Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_event(0)
    searched = count(monkeypatch, verdict, "mask_secrets")
    found = [fail_event(number) for number in range(1, 11)]
    assert searched == [f"RuntimeError: no such customer: {number}" for number in range(1, 11)]
    assert [each.error for each in found] == searched
    assert all((each.trace or "").endswith(text) for each, text in zip(found, searched, strict=True))


def test_the_frames_of_errors_from_one_place_are_formatted_once(
    fail_event: Callable[[int], verdict.Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_event(0)
    formatted = count(monkeypatch, StackSummary, "format")
    for number in range(1, 11):
        assert "in fail" in (fail_event(number).trace or "")
    assert formatted == []
