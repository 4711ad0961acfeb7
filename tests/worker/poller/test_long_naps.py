"""A process that looks unasked only once an hour, as one of very many would: what comes waits for no hour."""

from collections.abc import Callable
from typing import Any

import pytest
from desk import Desk

from partbox import Fixed
from partbox.protocol.intervals import TICK
from partbox.worker.ownership.ownership import Ownership
from partbox.worker.poller import poller

HOUR = 3600.0  # longer than any test waits


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those that began with a tick: an hour where all is calm, whatever the process owns."""
    found: list[float] = []
    tick = Ownership.tick

    def longest(owned: int, lease: float, *, calm: bool) -> float:
        last.append(HOUR if calm and owned else TICK)
        return last[-1]

    last: list[float] = []
    monkeypatch.setattr(poller, "longest_tick", longest)
    monkeypatch.setattr(poller, "FEW_PARTITIONS", 257)
    monkeypatch.setattr(Ownership, "tick", lambda *args: (found.append(last[-1]), tick(*args))[1])
    return found


@pytest.mark.parametrize("fields", [{}, {"deliver_after": 0.3}], ids=["a retry", "a delayed event"])
def test_a_parked_event_that_blocks_nothing_runs_when_it_is_due_though_its_process_rarely_ticks(
    desk_with: Callable[..., Desk], pauses: list[float], fields: dict[str, Any]
) -> None:
    desk = desk_with(bell="on")

    @desk.outbox.on("Counted", retry=Fixed(0.3))
    def fails_once(event: Any) -> None:
        desk.note(event)
        if event.attempt == 1:
            raise RuntimeError("once")

    with desk.outbox.worker():
        desk.eventually(lambda: HOUR in pauses)
        desk.publish(None, 1, **fields)
        desk.eventually(lambda: [attempt for _, _, attempt in desk.seen] == [1, 2])
