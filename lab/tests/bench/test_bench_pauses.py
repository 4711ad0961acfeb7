"""Which pause is ours, and which one the machine's."""

from hypothesis import given
from hypothesis import strategies as st

from partbox_lab.bench.pauses import MILLION, Span, beyond, distribution, gaps


def span(began: float, ended: float) -> Span:
    """In milliseconds."""
    return Span(round(began * MILLION), round(ended * MILLION))


SPANS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(1, 30)).map(lambda each: span(each[0], sum(each))), max_size=20
)


def test_a_pause_that_a_control_had_too_is_the_machines():
    ours = [span(0, 3), span(10, 90), span(100, 130)]
    assert beyond(ours, []) == 80
    assert beyond(ours, [span(20, 85)]) == 30  # the third one counts now, for the second is 15 beyond
    assert beyond(ours, [span(90, 200), span(0, 10)]) == 80  # another time
    assert beyond([], [span(0, 10)]) == 0


def test_a_control_covers_every_pause_that_it_overlaps():
    ours = [span(0, 60), span(10, 70), span(65, 120)]
    assert beyond(ours, [span(5, 66)]) == 0  # the control's is longer than any
    assert beyond(ours, [span(5, 65)]) == 55


@given(SPANS, SPANS)
def test_it_is_what_comparing_each_with_each_finds(ours, controls):
    expected = [
        each.ms
        - max((other.ms for other in controls if other.began < each.ended and other.ended > each.began), default=0)
        for each in ours
    ]
    assert beyond(ours, controls) == max([0.0, *expected])


def test_a_distribution_gives_values_that_were_seen():
    found = distribution(float(each) for each in range(1, 101))
    assert (found.number, found.p50, found.p99, found.p999, found.longest, found.above) == (100, 51, 100, 100, 100, 50)
    assert str(found) == "51.0 / 100.0 / 100.0 / 100.0"


def test_gaps_lie_between_moments_in_their_order():
    assert gaps([30, 10, 15]) == [Span(10, 15), Span(15, 30)]
