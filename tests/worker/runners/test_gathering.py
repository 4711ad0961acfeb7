"""Lists beside others: what may happen between two steps of gathering one, and while its handler runs."""

import time
from collections.abc import Callable, Sequence

import pytest
from hand_moved import FAR, KEY, HandMoved, row

from partbox.events import DeliveredEvent
from partbox.handlers import Handlers
from partbox.protocol.parking import ParkedRow, RowStage, RowState
from partbox.worker.engine.outcomes import Destination
from partbox.worker.engine.partition import Lane
from partbox.worker.runners.batches import Batches
from partbox.worker.runners.endpoint import Endpoint


class Listing(HandMoved):
    """Its handler takes lists; `runs` are their ids, and `meanwhile_it_runs` is what others do during one."""

    def __init__(self) -> None:
        self.runs: list[list[int]] = []
        self.meanwhile_it_runs: Callable[[], None] = lambda: None
        handlers = Handlers()
        handlers.on_batch("Counted", max_size=10)(self._handle)
        super().__init__(handlers, bundle=1)

    def _handle(self, events: Sequence[DeliveredEvent]) -> None:
        self.runs.append([event.id for event in events])
        self.meanwhile_it_runs()

    @property
    def endpoint(self) -> Endpoint:
        return self.routes["Counted", "Key"]

    def gathered(self, between: Callable[[], None]) -> list[int]:
        """The ids of a list that begins with the first lane; `between`: when the others were found."""
        runs = self.engine.runs
        take = runs.take

        def taken(to: Destination, most: int, now: float) -> list[Lane]:
            found = take(to, most, now)
            if found:
                between()
            return found

        runs.take = taken  # type: ignore[method-assign]
        lane = runs._ready.fresh.popleft()
        with self.engine.lock:
            runs.begin(lane, time.monotonic())
        members, _ = Batches(self.engine, self.runner, self.settlement)._gather(lane, self.endpoint)
        return [event.id for _, event, _ in members]

    def stuck(self) -> None:
        """The handler runs for long: what it runs is parked."""
        with self.engine.lock:
            self.engine.outcomes.unstick(self.lane)


@pytest.fixture
def rig() -> Listing:
    return Listing()


def test_of_a_list_that_ran_for_long_no_row_is_left_when_it_is_done(rig: Listing) -> None:
    rig.read(1, 2, 3)
    rig.meanwhile_it_runs = rig.stuck
    rig.go_on()
    assert rig.runs == [[1, 2, 3]]
    assert (rig.partition.parked.open, rig.partition.parked.chains, rig.partition.progress.unfinished()) == (0, {}, [])


def test_what_follows_in_a_list_that_runs_for_long_is_held_behind_its_first(rig: Listing) -> None:
    rig.read(1, 2, 3)
    states: dict[int, str] = {}

    def look() -> None:
        rig.stuck()
        states.update((id, pending.row.state) for id, pending in rig.partition.parked.pending.items())

    rig.meanwhile_it_runs = look
    rig.go_on()
    assert (states, rig.partition.parked.open) == ({1: "ready", 2: "held", 3: "held"}, 0)


def test_what_was_done_in_a_list_while_the_connection_was_lost_is_not_handed_over_again(rig: Listing) -> None:
    rig.read(1, 2, 3)
    rig.meanwhile_it_runs = rig.lose_connection
    rig.turn()
    rig.meanwhile_it_runs = lambda: None
    rig.read(1, 2, 3, 4)
    rig.go_on()
    assert rig.runs == [[1, 2, 3], [4]]
    assert rig.partition.progress.unfinished() == []


def test_of_a_partition_that_stops_meanwhile_nothing_joins_a_list(rig: Listing) -> None:
    rig.read(1, 2, keys="ab")

    def stop() -> None:
        rig.partition.stopping = True

    assert rig.gathered(stop) == [1]


def test_what_was_done_before_a_lost_connection_does_not_join_a_list(rig: Listing) -> None:
    rig.read(1, 2, keys="ab")
    assert rig.gathered(lambda: rig.partition.resumption.remembered.add((2, (2).to_bytes(16)))) == [1]


def test_of_a_partition_that_is_read_anew_meanwhile_nothing_joins_a_list(rig: Listing) -> None:
    rig.read(1, 2, keys="ab")

    def read_anew() -> None:
        rig.partition.incarnation += 1

    assert rig.gathered(read_anew) == [1]


def test_an_event_that_failed_before_joins_no_list(rig: Listing) -> None:
    rig.read(1, keys="a")
    failed = ParkedRow(2, RowState.READY, 1, True, stage=RowStage.LOADED)
    with rig.engine.lock:
        lane = rig.partition.lanes["Key", "b"] = Lane(rig.partition, ("Key", "b"))
        lane.queue.append(rig.turns.event(rig.partition, row(2, "b"), failed))
        rig.engine.runs.ready([lane], due=True)
    assert rig.gathered(lambda: None) == [1]


def test_followers_of_an_aggregate_come_with_its_first(rig: Listing) -> None:
    rig.turn_begins = FAR
    rig.read(1, 2, 3, 4, keys="akak")
    rig.go_on()
    assert rig.runs == [[1, 3, 2, 4]]
    with rig.engine.lock:
        assert KEY not in rig.partition.lanes
