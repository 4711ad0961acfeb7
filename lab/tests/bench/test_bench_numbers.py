"""The arithmetic of the lines: ratios, quantiles, latencies, and the judgement on deliveries."""

import os
import random
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import NamedTuple
from uuid import UUID

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox.errors import SettingsError
from partbox.protocol.hashing import partition_of
from partbox_lab.bench.baselines import waiting_tasks, waiting_threads
from partbox_lab.bench.cpu import StolenTime, between, by_process, cpu_seconds
from partbox_lab.bench.group import chosen_lines
from partbox_lab.bench.growth import GROWTH
from partbox_lab.bench.handlers import NOTE, WAIT, Notebook, Noted
from partbox_lab.bench.measurements import LINES
from partbox_lab.bench.measurements.cluster import judge, moved
from partbox_lab.bench.measurements.latency import figures
from partbox_lab.bench.node import halves
from partbox_lab.bench.paced_publisher import one_for_each_partition
from partbox_lab.bench.rounds import compared, in_turn, latencies, quantile, ratio, rotated
from partbox_lab.bench.sender import aggregate, schedule
from partbox_lab.bench.statements import BenchPartition

RATES = st.lists(st.floats(min_value=1, max_value=1e6), min_size=1, max_size=9)


def notes(*numbers: int) -> list[Noted]:
    return [Noted(number, at, 0, 1) for at, number in enumerate(numbers)]


@given(RATES, st.floats(min_value=0.01, max_value=100))
def test_a_ratio_is_taken_within_each_round_however_fast_the_rounds_were(rates, factor):
    assert ratio([rate * factor for rate in rates], rates) == pytest.approx(factor)


@given(st.lists(st.floats(min_value=-10, max_value=1e6), min_size=1, max_size=500))
def test_quantiles_lie_among_the_values_and_in_their_order(values):
    middle, tail = quantile(values, 0.5), quantile(values, 0.99)
    assert min(values) <= middle <= tail <= max(values)


@given(st.lists(st.floats(min_value=0, max_value=9), min_size=1, max_size=99))
def test_the_slowest_of_a_few_values_is_taken_as_the_p99(values):
    assert quantile(values, 0.99) == max(values)


def test_all_sides_of_a_ratio_are_measured_in_turn_and_the_first_round_does_not_count():
    order, values, begun = [], iter(range(100)), []

    def one() -> float:
        order.append("one")
        return next(values)

    def other() -> float:
        order.append("other")
        return next(values)

    assert in_turn(2, one, other, begin=begun.append) == ([3, 4], [2, 5])
    assert order == ["one", "other", "other", "one", "one", "other"]
    assert begun == [0, 1, 2]


def test_a_ratio_says_how_fast_both_sides_were():
    found = compared("x", ("ours", [1_000.0, 3_000.0]), ("theirs", [1_000.0, 1_000.0]), "; more")
    assert (found.value, found.note) == (2.0, "ours 2,000/s, theirs 1,000/s; medians of 2 rounds; more")
    assert found.details == {"ours": [1_000.0, 3_000.0], "theirs": [1_000.0, 1_000.0]}


class CpuTimes(NamedTuple):
    user: float
    idle: float
    steal: float
    guest: float


def test_stolen_time_is_given_as_a_share_of_all_cpu_time(monkeypatch):
    times = iter([CpuTimes(1, 5, 1, 0), CpuTimes(2, 7, 2, 9), CpuTimes(1, 5, 1, 0)])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(times))
    stolen = StolenTime()
    assert stolen.share() == 0.25
    assert stolen.share() == 0
    monkeypatch.setattr(psutil, "cpu_times", lambda: SimpleNamespace(user=1.0, idle=5.0))
    assert stolen.share() is None


def test_the_cpu_time_between_two_readings_counts_processes_that_still_run():
    assert between({1: 2.0, 2: 5.0}, {1: 3.5, 3: 0.25}) == 1.75


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel counts by the tick")
def test_the_cpu_time_of_a_process_includes_that_of_its_ended_threads():
    used: list[float] = []

    def compute() -> None:
        while time.thread_time() < 0.02:
            pass
        used.append(time.thread_time())

    before = cpu_seconds(os.getpid())
    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    assert cpu_seconds(os.getpid()) - before >= used[0]


def test_the_cpu_time_of_a_process_that_has_ended_is_left_out():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert by_process([os.getpid(), process.pid]).keys() == {os.getpid()}


def test_the_baseline_without_partbox_is_no_faster_than_its_waits_allow():
    for measure in (waiting_threads, waiting_tasks):
        assert 0 < measure(3, 6) <= 3 / WAIT * 1.01  # asyncio calls a clock tick early


def test_each_round_begins_with_another_side_of_the_comparison():
    assert [rotated("abc", number) for number in range(4)] == [[*"abc"], [*"bca"], [*"cab"], [*"abc"]]


def test_a_latency_is_counted_from_the_commit_of_an_event_that_has_arrived():
    assert latencies({0: 1_000_000, 1: 5_000_000, 2: 6_000_000}, {1: 4_900_000, 0: 3_000_000}) == [2.0, -0.1]


def test_the_figures_of_a_rate_say_how_many_samples_they_come_from():
    sent = {number: number * 10_000_000 for number in range(11)}
    arrived = {number: at + 2_000_000 for number, at in sent.items()} | {10: sent[10] + 9_000_000}
    middle, tail = figures(100, sent, arrived)
    assert (middle.name, middle.value, middle.note) == ("latency-100-p50", 2.0, "11 samples, 100 a second")
    assert (tail.name, tail.value) == ("latency-100-p99", 9.0)
    assert tail.note == "11 samples, 100 a second, too few for a p99: this is the slowest"
    (alone, _) = figures(1, {0: 5}, {0: 1_000_005})
    assert (alone.value, alone.note) == (1.0, "1 sample")


@given(st.integers(1, 4), st.integers(1, 200), st.randoms(use_true_random=False))
def test_deliveries_in_the_order_of_each_aggregate_are_fine_however_aggregates_mix(clients, count, chance):
    lanes: dict[str, list[int]] = {}
    for number in range(count):
        lanes.setdefault(aggregate(number, clients), []).append(number)
    mixed = []
    while lanes:
        key = chance.choice(sorted(lanes))
        mixed.append(lanes[key].pop(0))
        if not lanes[key]:
            del lanes[key]
    assert judge(notes(*mixed), clients) == (count, 0, 0)
    repeated = chance.choice(mixed)
    assert judge(notes(*mixed, repeated), clients) == (count, 1, 0)


def test_an_event_delivered_after_a_later_one_of_its_aggregate_counts_as_reordered():
    first, second = 0, 512
    assert aggregate(first, 1) == aggregate(second, 1)
    assert judge(notes(first, second), 1).reordered == 0
    assert judge(notes(second, first), 1) == (2, 0, 1)


def test_a_partition_has_moved_if_it_was_claimed_anew():
    one, two = UUID(int=1), UUID(int=2)
    before = [BenchPartition(0, one, 5), BenchPartition(1, one, 5), BenchPartition(2, one, 5)]
    after = [BenchPartition(0, one, 5), BenchPartition(1, two, 6), BenchPartition(2, one, 7)]
    assert moved(before, after) == 2


def test_each_partition_gets_one_event_with_a_number_of_its_own():
    events = one_for_each_partition(512)
    assert sorted(partition_of(str(each.aggregate_id)) for each in events) == list(range(256))
    assert sorted(each.payload["number"] for each in events) == list(range(512, 768))


@given(st.floats(min_value=0.5, max_value=1_000), st.floats(min_value=0.1, max_value=5))
def test_a_publisher_publishes_one_event_at_a_random_time_within_each_period(rate, seconds):
    due = list(schedule(rate, seconds, random.Random(1)))
    assert len(due) == max(1, round(rate * seconds))
    assert all(turn / rate <= at <= (turn + 1) / rate for turn, at in enumerate(due))


def test_memory_is_measured_in_the_first_and_the_second_half_of_a_drain():
    assert halves([(0.0, 0), (10.0, 5), (11.0, 7), (12.0, 6), (13.0, 9), (14.0, 8)], 4.0) == (7, 9)


def test_a_note_that_is_only_partly_written_is_read_later(tmp_path):
    book = Notebook(tmp_path / "notes")
    note = NOTE.pack(7, 8, 9, 10)
    with book.path.open("ab", buffering=0) as file:
        file.write(note + note[:5])
        assert list(book.new()) == [Noted(7, 8, 9, 10)]
        file.write(note[5:])
        assert list(book.new()) == [Noted(7, 8, 9, 10)]
    assert list(book.new()) == []


def test_no_name_selects_every_measurement_and_an_unknown_one_is_refused_with_the_nearest():
    assert chosen_lines(LINES, []) == LINES.names
    assert chosen_lines(LINES, ["memory", "memory"]) == {"memory"}
    assert chosen_lines(GROWTH, ["instances-idle"]) == {"instances-idle"}
    with pytest.raises(SettingsError, match="there is no line 'memori': did you mean memory"):
        chosen_lines(LINES, ["memori"])
    with pytest.raises(SettingsError, match="`partbox bench --list` names them"):
        chosen_lines(LINES, ["%%%"])
