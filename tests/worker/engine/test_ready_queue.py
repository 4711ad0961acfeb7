"""The shares of new events and of retried events in the turns of a process."""

from typing import Any

import pytest

from partbox.worker.engine.ready_queue import ReadyQueue


def taken(queue: ReadyQueue, times: int) -> list[str]:
    return [lane for _ in range(times) for lane in queue.take()]  # type: ignore[misc]


@pytest.mark.parametrize("bundle", [1, 64])
def test_events_that_are_tried_again_get_a_quarter_of_the_turns_while_new_ones_wait(bundle: int) -> None:
    queue, lanes = ReadyQueue(bundle), dict[str, Any](new=["new"] * 30, again=["again"] * 30)
    queue.add(lanes["new"], due=False)
    queue.add(lanes["again"], due=True)
    assert taken(queue, 40) == ["new", "new", "new", "again"] * 10
    assert taken(queue, 20) == ["again"] * 20
