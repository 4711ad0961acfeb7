"""Looks at the handlers that run, from a poller that steps without a pause."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from partbox.worker.runners.timeouts import CHECK_INTERVAL, HandlerTimeouts


def test_a_poller_that_never_pauses_checks_the_running_handlers_once_in_a_while(monkeypatch: Any) -> None:
    looks: list[float] = []
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr("partbox.worker.runners.timeouts.time", SimpleNamespace(monotonic=lambda: clock.now))

    def note_running() -> list[Any]:
        looks.append(clock.now)
        return []

    parts: Any = SimpleNamespace(note_running=note_running, running=list)
    timeouts = HandlerTimeouts(parts, parts, parts, parts, is_replaceable=True)
    for _ in range(100):
        timeouts.check_overdue()
        clock.now += CHECK_INTERVAL / 8
    assert looks[0] == 100.0
    assert {round((later - one) / CHECK_INTERVAL) for one, later in pairwise(looks)} == {1}
    assert len(looks) in (12, 13)
