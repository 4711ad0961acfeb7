"""The engine that ships against a model of the database, in every order of events that Hypothesis can think of.

The machine, and what it checks, are in `engine_machine`; here are the bounds under which it plays.
"""

import asyncio

import pytest
from engine_machine import CLOSED, CLOSINGS, FLOODED, FLOODS, SPILLED, SPILLS, WANTED, EngineMachine, Theme
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, run_state_machine_as_test
from model_clock import ModelClock
from model_handlers import Shape
from run_size import examples

from partbox.db.delivery import parked as parked_queries
from partbox.protocol import circuit
from partbox.protocol import cursor as cursor_rules
from partbox.protocol import progress as progress_rules
from partbox.protocol import sweep as sweep_rules
from partbox.worker.engine import limited_queue, read_budget
from partbox.worker.saver import saver

PROFILE = settings(
    max_examples=examples(160), stateful_step_count=6, deadline=None, print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],  # explaining traces every line, which is slow
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)  # fmt: skip


class SpillMachine(EngineMachine):
    @initialize(
        first_xid=st.just(5), shape=SPILLED, theme=st.sampled_from(SPILLS), wanted=st.sampled_from(WANTED),
    )  # fmt: skip
    def start(self, first_xid: int, shape: Shape, theme: Theme, wanted: frozenset[str] | None) -> None:
        super().start(first_xid, shape, theme, wanted)


class FloodMachine(EngineMachine):
    @initialize(first_xid=st.just(5), shape=FLOODED, theme=st.sampled_from(FLOODS), wanted=st.none())
    def start(self, first_xid: int, shape: Shape, theme: Theme, wanted: frozenset[str] | None) -> None:
        super().start(first_xid, shape, theme, wanted)


class ClosingMachine(EngineMachine):
    @initialize(first_xid=st.just(5), shape=CLOSED, theme=st.sampled_from(CLOSINGS), wanted=st.none())
    def start(self, first_xid: int, shape: Shape, theme: Theme, wanted: frozenset[str] | None) -> None:
        super().start(first_xid, shape, theme, wanted)


@pytest.mark.parametrize(("cap", "stretch", "late_pages"), [(2, 5, 2), (1, 1_000_000, 1), (1_000, 1_000_000, 64)])
def test_nothing_is_lost_doubled_or_reordered_by_the_engine_that_ships(
    monkeypatch: pytest.MonkeyPatch,
    stage: tuple[asyncio.AbstractEventLoop, ModelClock],
    cap: int,
    stretch: int,
    late_pages: int,
) -> None:
    """With small bounds every other late page is cut, late pages are merged, and lines for permits are put away."""
    EngineMachine.loop, EngineMachine.clock = stage
    monkeypatch.setattr(cursor_rules, "MAX_LATE", cap)
    monkeypatch.setattr(cursor_rules, "STRETCH", stretch)
    monkeypatch.setattr(sweep_rules, "MIN_PARTITIONS", 1)
    monkeypatch.setattr(sweep_rules, "STRETCH", 0.02)
    monkeypatch.setattr(progress_rules, "MAX_LATE_PAGES", late_pages)
    monkeypatch.setattr(read_budget, "LEAST_SHARE", 3)
    monkeypatch.setattr(read_budget, "GUESSED_BYTES", 500)
    monkeypatch.setattr(limited_queue, "MIN_LANES", 2)
    monkeypatch.setattr(limited_queue, "KEEP_SECONDS", 0.2)
    monkeypatch.setattr(saver, "IDLE_ADVANCE", 2.0)
    monkeypatch.setattr(parked_queries, "MOST_REFILL_READ", 4)
    run_state_machine_as_test(EngineMachine, settings=PROFILE)


@pytest.mark.parametrize(("cap", "late_pages"), [(2, 2), (1_000, 64)])
def test_nothing_is_lost_doubled_or_reordered_when_blocked_keys_leave_events_in_the_log(
    monkeypatch: pytest.MonkeyPatch, stage: tuple[asyncio.AbstractEventLoop, ModelClock], cap: int, late_pages: int
) -> None:
    EngineMachine.loop, EngineMachine.clock = stage
    monkeypatch.setattr(cursor_rules, "MAX_LATE", cap)
    monkeypatch.setattr(progress_rules, "MAX_LATE_PAGES", late_pages)
    monkeypatch.setattr(parked_queries, "MOST_REFILL_READ", 3)
    monkeypatch.setattr(read_budget, "LEAST_SHARE", 3)
    monkeypatch.setattr(saver, "IDLE_ADVANCE", 2.0)
    run_state_machine_as_test(SpillMachine, settings=settings(PROFILE, max_examples=examples(60)))


def test_nothing_is_lost_doubled_or_reordered_when_a_flood_waits_for_permits(
    monkeypatch: pytest.MonkeyPatch, stage: tuple[asyncio.AbstractEventLoop, ModelClock]
) -> None:
    EngineMachine.loop, EngineMachine.clock = stage
    monkeypatch.setattr(limited_queue, "MIN_LANES", 1)
    monkeypatch.setattr(limited_queue, "KEEP_SECONDS", 0.2)
    monkeypatch.setattr(read_budget, "LEAST_SHARE", 3)
    monkeypatch.setattr(saver, "IDLE_ADVANCE", 2.0)
    monkeypatch.setattr(parked_queries, "MOST_REFILL_READ", 4)
    run_state_machine_as_test(FloodMachine, settings=settings(PROFILE, max_examples=examples(60)))


def test_nothing_is_lost_doubled_or_reordered_while_circuits_of_values_open_and_operators_pause(
    monkeypatch: pytest.MonkeyPatch, stage: tuple[asyncio.AbstractEventLoop, ModelClock]
) -> None:
    EngineMachine.loop, EngineMachine.clock = stage
    monkeypatch.setattr(limited_queue, "INTERVAL_ELSE", 0.05)
    monkeypatch.setattr(circuit, "VALUE_PAUSE", 4.0)
    monkeypatch.setattr(circuit, "VALUE_FAILURES", 1)
    monkeypatch.setattr(read_budget, "LEAST_SHARE", 3)
    monkeypatch.setattr(saver, "IDLE_ADVANCE", 2.0)
    run_state_machine_as_test(ClosingMachine, settings=settings(PROFILE, max_examples=examples(80)))
