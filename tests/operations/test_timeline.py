"""The story of a record in words."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from partbox.db.inspect.found import MAX_AHEAD, FoundRecord
from partbox.operations.timeline import OUTCOME_TEXTS, STATE_TEXTS, TimelineEntry, entry_text, summary, timeline
from partbox.protocol.delivery_status import Delivery, DeliveryStatus, HistoryEntry

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
ANYTHING = "{0} {who} {} %s\n{"


def at(second: int) -> datetime:
    return EPOCH + timedelta(seconds=second)


def record(*standings: DeliveryStatus, available_at: datetime | None = None) -> FoundRecord:
    known = (7, UUID(int=7), "Placed", "Order", "a", None, 178, at(0), at(0), available_at, None, 2)
    return FoundRecord(*known, {}, None, None, None, standings)


def test_a_timeline_is_in_the_order_of_time_and_ends_with_the_present_state():
    history = (
        HistoryEntry(at(10), "failed", 1, "7 on web", 0.5, "ValueError: no"),
        HistoryEntry(at(30), "dead", 2, "8 on web", 0.001, "ValueError: no"),
        HistoryEntry(at(90), "replayed", 0, who="alice"),
    )
    default = DeliveryStatus("default", "ready", "8 on web", why="the subscription is paused", history=history)
    end = Delivery("delivered", at(5), at(20), "9 on web")
    billing = DeliveryStatus("billing", "delivered", "9 on web", delivered=end)
    assert timeline(record(default, billing, available_at=at(4))) == [
        TimelineEntry(at(0), None, "published"),
        TimelineEntry(at(4), None, "may be delivered from now on"),
        TimelineEntry(at(10), "default", "attempt 1 failed after 500 ms in 7 on web: ValueError: no"),
        TimelineEntry(at(20), "billing", "delivered between 2026-01-01 00:00:05Z and 2026-01-01 00:00:20Z by 9 on web"),
        TimelineEntry(at(30), "default", "given up after 2 attempts in 8 on web: ValueError: no"),
        TimelineEntry(at(90), "default", "replayed by alice"),
        TimelineEntry(
            None,
            "default",
            "is to run as soon as a handler is free, in a partition owned by 8 on web; the subscription is paused",
        ),
    ]


def test_a_delivery_with_a_history_row_appears_once():
    done = HistoryEntry(at(20), "repeated", 2, "8 on web")
    end = Delivery("repeated", at(10), at(20), "8 on web")
    told = timeline(record(DeliveryStatus("default", "delivered", "8 on web", delivered=end, history=(done,))))
    assert [each.text for each in told] == [
        "published",
        "delivered in 8 on web; a process that died may have run it, too",
    ]


def test_the_position_in_the_queue_is_given_as_far_as_it_was_counted():
    waits = DeliveryStatus("default", "waiting", "8 on web", behind=5, ahead=MAX_AHEAD + 1)
    assert "behind record 5 of its aggregate, over 1,000 records of its partition come before" in summary(waits)
    assert "12 records of its partition" in summary(replace(waits, ahead=12))
    assert "come before" not in summary(replace(waits, ahead=0))


@given(st.sampled_from([*OUTCOME_TEXTS, "of a later version"]))
def test_text_of_a_user_appears_in_a_timeline_verbatim(outcome):
    told = entry_text(HistoryEntry(at(1), outcome, 1, ANYTHING, 1.0, ANYTHING, ANYTHING))
    assert "{0} {who} {} %s" in told


@given(st.sampled_from([*STATE_TEXTS]))
def test_only_a_delivered_record_is_summarised_as_delivered(state):
    told = summary(DeliveryStatus("default", state, due_at=at(1), since=at(1), error=ANYTHING, process=ANYTHING))
    assert told.startswith("delivered") == (state == "delivered")
