"""A node with thousands of handlers: what its metrics cost and show."""

import sys
from collections.abc import Callable
from typing import Any

from partbox import Outbox
from partbox.observe.metrics.families import MAX_UNCOUNTED, LabelledReading, build_process_families
from partbox.observe.metrics.meter import Layout, Meters, MetricsRecorder
from partbox.observe.observer import Turn


def handlers_shown(meters: Meters) -> set[str]:
    families = build_process_families("p", [LabelledReading(("default",), meters.take_reading())])
    samples = [sample for family in families for sample in family.samples]
    return {sample.labels["handler"] for sample in samples if "handler" in sample.labels}


def names(number: int) -> list[str]:
    return [f"handler{at}" for at in range(number)]


def count_calls(run: Callable[[], object]) -> int:
    calls = 0

    def count(frame: Any, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return calls


def test_all_handlers_of_a_small_node_have_series_before_they_run():
    assert handlers_shown(Meters(names(MAX_UNCOUNTED - 1))) == {*names(MAX_UNCOUNTED - 1)}


def test_of_many_handlers_only_those_that_ran_have_series():
    meters = Meters(names(MAX_UNCOUNTED + 1))
    assert handlers_shown(meters) == set()
    MetricsRecorder(meters.own_meter).delivered(Turn("handler7", 1, 0.5, [0.5], 0.0, 0.0, 0.2))
    assert handlers_shown(meters) == {"handler7"}


def test_the_indexes_of_a_handler_are_not_searched_among_those_of_all():
    layout = Layout(names(3))
    assert layout.list_indexes("handler1") is layout.list_indexes("handler1")
    assert layout.list_indexes("nobody") == {}


def test_making_a_supervisor_costs_as_many_calls_for_each_handler_whatever_their_number():
    def calls(number: int) -> int:
        outbox = Outbox("postgresql://nowhere")
        for name in names(number):
            outbox.register(print, name, name=name)
        return count_calls(lambda: outbox.supervisor(processes=1))

    calls(1)  # imports modules
    few, many = calls(100), calls(400)
    assert many - few < 3.5 * few
