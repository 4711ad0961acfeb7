"""Of many alike lines some are logged, and the others are counted."""

from hypothesis import given
from hypothesis import strategies as st

from partbox import log_rate_limit as log_rate_limiter
from partbox.log_rate_limit import BURST, SPAN, LogRateLimiter


def test_a_burst_is_said_and_the_rest_is_counted_with_the_next():
    lines = LogRateLimiter()
    assert [lines.admit("a", 0.0) for _ in range(BURST)] == [0] * BURST
    assert [lines.admit("a", 1.0) for _ in range(3)] == [None] * 3
    assert lines.admit("b", 1.0) == 0, "another kind has its own burst"

    assert lines.admit("a", SPAN + 0.1) == 3
    assert lines.admit("a", SPAN + 0.2) is None


def test_a_kind_of_line_that_was_quiet_for_long_may_burst_again():
    lines = LogRateLimiter()
    for _ in range(3 * BURST):
        lines.admit("a", 0.0)

    assert [lines.admit("a", BURST * SPAN) for _ in range(BURST + 1)] == [2 * BURST, *[0] * (BURST - 1), None]


def test_kinds_beyond_the_bound_are_forgotten_oldest_first(monkeypatch):
    monkeypatch.setattr(log_rate_limiter, "MOST", 2)
    lines = LogRateLimiter()
    for kind in ("a", "b", "c"):
        for _ in range(BURST):
            lines.admit(kind, 0.0)

    assert lines.admit("b", 0.0) is None
    assert lines.admit("a", 0.0) == 0


@given(st.lists(st.floats(0, 30), max_size=80))
def test_every_line_is_said_or_counted_once_and_no_span_says_more_than_a_burst(pauses):
    lines, now, said, counted = LogRateLimiter(), 0.0, [], 0
    for pause in pauses:
        now += pause
        held = lines.admit("a", now)
        if held is not None:
            said.append(now)
            counted += held + 1
    assert counted <= len(pauses)
    assert all(len([each for each in said if at <= each < at + SPAN]) <= BURST + 1 for at in said)
