"""When the span of a poll ends, and what it counts then: no database, no threads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from partbox.observe import polls
from partbox.observe.polls import OpenPollSpans


class Watched(OpenPollSpans):
    """Polls, and the spans of those that ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        super().__init__(provider.get_tracer("test"), "default")

    @property
    def ended(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def counts(self) -> list[tuple[int, int, int, int]]:
        """Of each that ended: size, successes, failures, open."""
        names = ("batch.size", "success.count", "failure.count", "open.count")
        return [tuple((span.attributes or {}).get(name, 0) for name in names) for span in self.ended]


@pytest.fixture
def open_polls() -> Watched:
    return Watched()


def test_a_poll_ends_with_its_last_record(open_polls):
    open_polls.start_span([(1, 10), (2, 11), (3, 12)], 0.5)
    open_polls.note_settled((1, 10), True)
    open_polls.note_settled((2, 11), False)
    assert open_polls.ended == []

    open_polls.note_settled((3, 12), None)

    assert open_polls.counts() == [(3, 1, 1, 0)]
    assert open_polls.ended[0].end_time - open_polls.ended[0].start_time >= 0.5e9


def test_only_the_first_outcome_of_a_record_counts(open_polls):
    open_polls.start_span([(1, 10), (1, 11)], 0.0)
    open_polls.note_settled((1, 10), False)
    open_polls.note_settled((1, 10), True)
    open_polls.note_settled((1, 11), True)

    assert open_polls.counts() == [(2, 1, 1, 0)]


def test_records_of_a_lost_partition_are_removed_from_their_polls(open_polls):
    open_polls.start_span([(1, 10), (2, 11)], 0.0)
    open_polls.start_span([(1, 12)], 0.0)
    open_polls.note_settled((2, 11), True)

    open_polls.drop_partition(1)

    assert open_polls.counts() == [(2, 1, 0, 0), (1, 0, 0, 0)]
    assert open_polls.find_context((1, 10)) is None


def test_a_record_that_is_read_again_belongs_to_the_newer_poll(open_polls):
    open_polls.start_span([(1, 10)], 0.0)
    open_polls.start_span([(1, 10)], 0.0)
    assert open_polls.counts() == [(1, 0, 0, 0)]

    open_polls.note_settled((1, 10), True)

    assert open_polls.counts()[1:] == [(1, 1, 0, 0)]


def test_only_old_polls_are_ended_early_and_they_count_their_open_records(open_polls, monkeypatch):
    open_polls.start_span([(1, 10), (1, 11)], 0.0)
    open_polls.note_settled((1, 10), True)
    open_polls.end_stale(records=1)
    assert open_polls.ended == []

    monkeypatch.setattr(polls, "LONGEST", -1.0)
    open_polls.end_stale(records=1)
    open_polls.note_settled((1, 11), True)  # too late

    assert open_polls.counts() == [(2, 1, 0, 1)]


def test_all_polls_end_when_no_record_was_in_memory_at_two_checks(open_polls):
    open_polls.start_span([(1, 10), (1, 11)], 0.0)
    open_polls.end_stale(records=0)
    open_polls.note_settled((1, 10), True)  # it was on its way
    open_polls.start_span([(1, 12)], 0.0)  # came, and was saved, between the looks
    open_polls.end_stale(records=0)
    assert open_polls.counts() == [(2, 1, 0, 1)]

    open_polls.end_stale(records=3)
    open_polls.end_stale(records=0)
    assert len(open_polls.ended) == 1
    open_polls.end_stale(records=0)

    assert open_polls.counts()[1:] == [(1, 0, 0, 1)]


records = st.tuples(st.integers(0, 3), st.integers(0, 20))
steps = st.one_of(
    st.tuples(st.just("begin"), st.sets(records, min_size=1)),
    st.tuples(st.just("settled"), records, st.sampled_from([True, False, None])),
    st.tuples(st.just("drop"), st.integers(0, 3)),
    st.tuples(st.just("sweep")),
)


@given(st.lists(steps, max_size=40))
def test_each_poll_ends_exactly_once_and_counts_the_reported_outcomes(taken):
    open_polls, told, begun = Watched(), {True: 0, False: 0, None: 0}, 0
    open_records = set()
    for name, *arguments in taken:
        match name:
            case "begin":
                open_polls.start_span(sorted(arguments[0]), 0.0)
                open_records |= arguments[0]
                begun += 1
            case "settled":
                record, success = arguments
                assert (open_polls.find_context(record) is not None) == (record in open_records)
                open_polls.note_settled(record, success)
                told[success] += record in open_records
                open_records.discard(record)
            case "drop":
                open_polls.drop_partition(arguments[0])
                open_records = {record for record in open_records if record[0] != arguments[0]}
            case "sweep":
                open_polls.end_before()
                open_records = set()
    open_polls.end_before()

    assert len(open_polls.ended) == begun
    assert sum(succeeded for _, succeeded, _, _ in open_polls.counts()) == told[True]
    assert sum(failed for _, _, failed, _ in open_polls.counts()) == told[False]
