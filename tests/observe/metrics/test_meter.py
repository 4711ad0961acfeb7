"""The numbers of processes: nothing that was counted is lost with a process, and gauges die with it."""

import os
import signal
import threading
import time

from hypothesis import given
from hypothesis import strategies as st
from multiprocess import get_context

from partbox.observe.metrics.families import LabelledReading, build_process_families
from partbox.observe.metrics.meter import OTHER, Layout, Meter, Meters, MetricsRecorder
from partbox.observe.metrics.table import HANDLER_SECONDS
from partbox.observe.observer import Load, Turn

COUNTED = 1_000


def value(meters: Meters, name: str, **labels: str) -> float | None:
    """One sample, as Prometheus would get it."""
    for family in build_process_families("p", [LabelledReading(("default",), meters.take_reading())]):
        for sample in family.samples:
            if sample.name == f"p_{name}" and sample.labels == {"subscription": "default", **labels}:
                return sample.value
    return None


def joined(meters: Meters) -> Meter:
    meter = Meter(meters.layout)
    meters.add_meter(meter)
    return meter


class Yielding(list):
    """Lets another thread run between the reading of a cell and its writing, as any interpreter may."""

    def __getitem__(self, at):
        found = super().__getitem__(at)
        time.sleep(0)  # gives the interpreter away, and waits for nothing
        return found


def count_and_die(layout: Layout, cells, writer) -> None:
    """Counts, says so, and goes on counting until it is killed, its lock held at every moment or nearly."""
    recorder = MetricsRecorder(Meter(layout, cells))
    for _ in range(COUNTED):
        recorder.delivered(Turn("confirm", 1, 0.5, [0.5], 0.0, 0.0, 0.2))
    recorder.loaded(Load(500, 1_000, 7, 4, 256))
    writer.send("counted")
    while True:
        recorder.refused(1)


def test_a_killed_process_loses_no_count_and_all_its_gauges():
    context = get_context("spawn")
    meters = Meters(["confirm"])
    meter = Meter.create_shared(meters.layout, context)
    meters.add_meter(meter)
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=count_and_die, args=(meters.layout, meter.cells, writer))
    process.start()
    try:
        assert reader.recv() == "counted"
        assert value(meters, "processes") == 1
        assert value(meters, "lanes") == 7
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.join()
        process.close()
    before = value(meters, "fence_rejections_total")
    meters.retire_meter(meter)
    assert value(meters, "delivered_total", handler="confirm") == COUNTED
    assert value(meters, "handler_seconds_count", handler="confirm") == COUNTED
    assert value(meters, "handler_seconds_sum", handler="confirm") == COUNTED * 0.5
    assert value(meters, "fence_rejections_total") == before
    assert [value(meters, name) for name in ("processes", "lanes", "window_used_ratio")] == [0, 0, 0]


@given(st.lists(st.tuples(st.sampled_from(["join", "retire", "count", "own"]), st.integers(0, 3))))
def test_counters_never_go_back_whoever_comes_and_goes(steps):
    meters, living, last, counted = Meters([]), [], 0.0, 0
    for step, which in steps:
        if step == "join":
            living.append(joined(meters))
        elif step == "own":
            meters.own_meter.add("saves_total")
            counted += 1
        elif living:
            meter = living[which % len(living)]
            if step == "retire":
                living.remove(meter)
                meters.retire_meter(meter)
                meters.retire_meter(meter)
            else:
                meter.add("saves_total")
                counted += 1
        now = value(meters, "saves_total")
        assert now >= last
        last = now
        assert value(meters, "processes") == len(living)
    assert last == counted


def test_threads_of_a_process_lose_no_count_to_each_other():
    meters = Meters(["confirm"])
    meter = Meter(meters.layout, Yielding([0.0] * meters.layout.size))
    meters.add_meter(meter)
    recorder, turn = MetricsRecorder(meter), Turn("confirm", 1, 0.0, [], 0.0, 0.0, 0.0)
    threads = [threading.Thread(target=lambda: [recorder.delivered(turn) for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(meters, "delivered_total", handler="confirm") == 400


def test_gauges_of_living_processes_are_added_up_but_the_window_ratio_is_the_highest():
    meters = Meters(["confirm"])
    for share in (0.25, 0.75):
        recorder = MetricsRecorder(joined(meters))
        recorder.loaded(Load(int(1_000 * share), 1_000, 3, 2, 128))
        recorder.circuit("confirm", True)
    assert value(meters, "lanes") == 6
    assert value(meters, "handlers_running") == 4
    assert value(meters, "window_used_ratio") == 0.75
    assert value(meters, "circuit_open", handler="confirm") == 2


def test_an_unknown_handler_counts_as_other_which_is_shown_only_then():
    meters = Meters(["confirm"])
    recorder = MetricsRecorder(joined(meters))
    assert value(meters, "delivered_total", handler=OTHER) is None
    recorder.delivered(Turn("newcomer", 3, 0.0, [], 0.0, 0.0, 0.0))
    assert value(meters, "delivered_total", handler=OTHER) == 3
    assert value(meters, "delivered_total", handler="confirm") == 0


def test_a_handler_may_be_called_other_and_two_may_share_a_name():
    assert Layout([OTHER, "a", "a"]).handlers == (OTHER, "a")
    meters = Meters([OTHER, "a", "a"])
    MetricsRecorder(joined(meters)).delivered(Turn(OTHER, 1, 0.0, [], 0.0, 0.0, 0.0))
    assert value(meters, "delivered_total", handler=OTHER) == 1


def test_histogram_buckets_are_cumulative():
    meters = Meters(["confirm"])
    MetricsRecorder(joined(meters)).delivered(Turn("confirm", 4, 700.5, [0.004, 0.3, 700.0], 0.0, 0.0, 0.0))
    bounds = {
        bound: value(meters, "handler_seconds_bucket", handler="confirm", le=str(bound)) for bound in HANDLER_SECONDS
    }
    assert bounds[0.001] == 1
    assert bounds[0.005] == 2
    assert bounds[0.5] == bounds[300.0] == 3
    assert value(meters, "handler_seconds_bucket", handler="confirm", le="+Inf") == 4
    assert value(meters, "handler_seconds_count", handler="confirm") == 4
    assert value(meters, "handler_seconds_sum", handler="confirm") == 700.5
