"""What each hook counts."""

import pytest
from prometheus_client import Metric

from partbox.events import ClaimContext, DeliveredEvent
from partbox.observe import Observer
from partbox.observe.metrics.families import LabelledReading, build_process_families
from partbox.observe.metrics.meter import Meter, Meters, MetricsRecorder
from partbox.observe.observer import Turn
from partbox.protocol.parking import RowState
from partbox.protocol.verdict import Verdict


@pytest.fixture
def meters() -> Meters:
    return Meters(["confirm"])


@pytest.fixture
def recorder(meters) -> MetricsRecorder:
    meter = Meter(meters.layout)
    meters.add_meter(meter)
    return MetricsRecorder(meter)


def counted(meters: Meters) -> dict[str, float]:
    """Every sample that is not zero, buckets left out; handler and state stand behind the name."""
    families: list[Metric] = list(build_process_families("p", [LabelledReading(("default",), meters.take_reading())]))
    samples = (sample for family in families for sample in family.samples if not sample.name.endswith("_bucket"))
    return {
        " ".join([sample.name.removeprefix("p_"), *(v for k, v in sample.labels.items() if k != "subscription")]): value
        for sample in samples
        if (value := sample.value) and sample.name != "p_processes"
    }


def event(attempt: int = 1) -> DeliveredEvent:
    return DeliveredEvent((5, 7), ClaimContext(1, "default", None), attempt)  # type: ignore[arg-type]


def test_a_page_that_was_read_is_counted_by_its_records_and_its_late_scan_range(recorder, meters):
    recorder.read([1, 2, 3], 0.01, 40)
    recorder.read([4], 0.01, 0)
    assert counted(meters) == {"records_read_total": 4, "late_scan_ids_total": 40}


def test_a_turn_counts_its_events_their_time_and_their_lag(recorder, meters):
    recorder.delivered(Turn("confirm", 3, 0.75, [0.7], oldest=90.0, newest=99.0, ended=100.0))
    assert counted(meters) == {
        "delivered_total confirm": 3,
        "handler_seconds_count confirm": 3,
        "handler_seconds_sum confirm": 0.75,
        "lag_seconds_count confirm": 3,
        "lag_seconds_sum confirm": 10.0 + 2 * 1.0,
    }


def test_a_clock_behind_that_of_the_database_makes_no_negative_lag(recorder, meters):
    recorder.delivered(Turn("confirm", 2, 0.0, [], oldest=101.0, newest=102.0, ended=100.0))
    assert counted(meters)["lag_seconds_count confirm"] == 2
    assert "lag_seconds_sum confirm" not in counted(meters)


@pytest.mark.parametrize(
    ("verdict", "error", "expected"),
    [
        (Verdict(RowState.RETRYING, 1, 1.0, True, "no"), ValueError("no"), {"failed"}),
        (Verdict(RowState.DEAD, 1, None, False, "no"), None, {"failed", "dead"}),
        (Verdict(RowState.DEFERRED, 0, 1.0, True, None), None, {"deferred"}),
        (Verdict(RowState.DEFERRED, 0, 1.0, True, "no"), ValueError("no"), {"failed", "deferred"}),
        (Verdict(RowState.SCHEDULED, 0, 1.0, False, None), None, set()),
    ],
    ids=["raised", "Dead", "RetryAfter", "raised while its circuit was open", "delayed"],
)
def test_an_attempt_failed_if_the_handler_raised_or_it_was_charged(recorder, meters, verdict, error, expected):
    recorder.parked(event(), "confirm", verdict, error, None)
    assert counted(meters) == {f"{name}_total confirm": 1 for name in expected}


def test_failed_attempts_take_time_too(recorder, meters):
    recorder.parked(event(), "confirm", Verdict(RowState.RETRYING, 1, 1.0, True, "no"), ValueError("no"), 0.25)
    assert counted(meters)["handler_seconds_sum confirm"] == 0.25
    assert counted(meters)["handler_seconds_count confirm"] == 1


def test_a_save_counts_what_it_parked_by_state(recorder, meters):
    recorder.saved(3, {"held": 5, "retrying": 1}, 0.002)
    assert counted(meters) == {
        "saves_total": 1,
        "save_seconds_total": 0.002,
        "parked_total held": 5,
        "parked_total retrying": 1,
    }


def test_ownership_is_counted_and_a_first_claim_is_no_handover(recorder, meters):
    recorder.claimed(1, 7, None)
    recorder.claimed(2, 8, 0.5)
    recorder.lost(3)
    recorder.refused(2)
    recorder.planned(128)
    recorder.buried(2)
    assert counted(meters) == {
        "claimed_partitions_total": 2,
        "handover_seconds_count": 1,
        "handover_seconds_sum": 0.5,
        "lost_partitions_total": 1,
        "fence_rejections_total": 1,
        "rebalances_total": 1,
        "moved_partitions_total": 128,
        "buried_instances_total": 2,
    }


def test_the_recorder_has_only_hooks_of_the_observer_protocol():
    hooks = {name for name in vars(MetricsRecorder) if not name.startswith("_")}
    assert hooks <= {name for name in vars(Observer) if not name.startswith("_")}
