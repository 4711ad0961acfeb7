"""An operator's arguments about a position in the log."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from partbox.errors import PartboxError
from partbox.operations import arguments
from partbox.operations.arguments import ReplayPosition, StartPosition

zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(timezones=zones)


@given(moments)
def test_a_datetime_and_its_text_are_the_same_position(when):
    assert arguments.parse_start_position(when) == StartPosition(False, when)
    assert arguments.parse_start_position(when.isoformat()).since == when
    assert arguments.parse_position(when.isoformat()) == ReplayPosition(None, when)


@given(st.integers(1, (1 << 63) - 1))
def test_a_number_as_a_position_is_a_record_id(number):
    expected = ReplayPosition(number, None)
    assert arguments.parse_position(str(number)) == arguments.build_replay_position(number, None) == expected


@given(st.text())
def test_any_other_text_is_refused_with_the_remedy(text):
    assume(not (text.isascii() and text.isdecimal()))
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = None
    assume(when is None or when.utcoffset() is None)
    with pytest.raises(PartboxError, match=r"ISO 8601|has no time zone: give it one"):
        arguments.parse_position(text)


def test_words_such_as_beginning_and_now_are_positions():
    assert (arguments.parse_start_position("beginning"), arguments.parse_start_position("now")) == (
        StartPosition(True, None),
        StartPosition(False, None),
    )


def test_time_zones_of_positions_are_respected():
    east = timezone(timedelta(hours=9))
    assert arguments.parse_start_position("2026-01-31T09:00:00+09:00").since == datetime(2026, 1, 31, 9, tzinfo=east)
    assert arguments.parse_start_position("2026-01-31T09:00:00Z").since == datetime(2026, 1, 31, 9, tzinfo=UTC)


@pytest.mark.parametrize("digits", ["²", "\uff11\uff12", "9" * 20, "0"])
def test_a_number_that_is_no_record_id_is_refused(digits):
    with pytest.raises(PartboxError):
        arguments.parse_position(digits)
