"""Hypothesis strategies for everything that may be published (`pip install 'partbox[testing]'`).

Each strategy produces all valid values, including rare ones: any text without NUL and lone surrogates, empty where that
is allowed. Every example can be published, and a handler gets it."""

from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from partbox.events import Event
from partbox.events.checks import GLOBAL, HEADER_PREFIX, MAX_DELAY, MAX_HEADERS, MAX_ID, MAX_KEY, MAX_NAME

__all__ = [
    "aggregate_ids",
    "aggregate_types",
    "event_types",
    "events",
    "headers",
    "idempotency_keys",
    "json_values",
    "moments",
    "partitions",
    "payloads",
]

# The codec excludes lone surrogates.
_CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
_ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
# The range of datetime in all time zones.
_FIRST, _LAST = datetime(1, 1, 2), datetime(9999, 12, 30)
_PAST, _FUTURE = datetime(2000, 1, 2), datetime(2500, 1, 1)


def aggregate_ids(max_size: int = MAX_ID // 4) -> SearchStrategy[str]:
    """Return a Hypothesis strategy for aggregate ids of at most `max_size` characters, including the empty text."""
    return _texts(max_size=max_size)


def aggregate_types(max_size: int = MAX_NAME) -> SearchStrategy[str]:
    """Return a Hypothesis strategy for aggregate types, including the type of events without an aggregate."""
    return st.just(GLOBAL) | _texts(min_size=1, max_size=max_size)


def event_types(max_size: int = MAX_NAME) -> SearchStrategy[str]:
    """Return a Hypothesis strategy that generates valid event types."""
    return _texts(min_size=1, max_size=max_size)


def idempotency_keys() -> SearchStrategy[str]:
    """Return a Hypothesis strategy that generates idempotency keys of 1 to 255 characters."""
    return _texts(min_size=1, max_size=MAX_KEY)


def headers(max_size: int = 8, *, full: bool = False) -> SearchStrategy[dict[str, str]]:
    """Return a Hypothesis strategy that generates dicts of valid event headers.

    A dict has at most `max_size` headers, within their common limit of 64 KiB. With `full`, some fill the limit, and
    Hypothesis warns about their size when it prints them."""
    names = _texts().filter(lambda name: not name.lower().startswith(HEADER_PREFIX))
    some = st.dictionaries(names, _texts(), max_size=max_size).filter(lambda given: _size(given) <= MAX_HEADERS)
    return some | st.builds(_full, names, _CHARACTERS) if full else some


def json_values(max_leaves: int = 10) -> SearchStrategy[Any]:
    """Return a Hypothesis strategy that generates JSON values that come back equal after publishing.

    The values are None, bools, 64-bit integers, finite floats, texts, lists and dicts."""
    floats = st.floats(allow_nan=False, allow_infinity=False)
    leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | floats | _texts()
    return st.recursive(leaves, _nested, max_leaves=max_leaves)


def payloads(max_leaves: int = 10) -> SearchStrategy[Any]:
    """Return a Hypothesis strategy that generates event payloads that come back equal after delivery.

    A payload is a JSON value or bytes, without a content type."""
    return json_values(max_leaves) | st.binary()


def partitions() -> SearchStrategy[int]:
    """Return a Hypothesis strategy that generates partition numbers: 0 to 255."""
    return st.integers(0, 255)


def moments() -> SearchStrategy[datetime]:
    """Return a Hypothesis strategy that generates datetimes with any time zone."""
    return st.datetimes(_FIRST, _LAST, timezones=_ZONES)


def events(*, delayed: bool = False, **fields: SearchStrategy[Any]) -> SearchStrategy[Event]:
    """Return a Hypothesis strategy that generates events with any mixture of fields.

    `fields` are your own strategies, by the name of a field of `Event`. With `delayed`, some events are delayed, even
    to the far future, so that a test that drains may never see them."""
    own: dict[str, SearchStrategy[Any]] = {
        "event_type": event_types(),
        "payload": payloads(),
        "aggregate_type": aggregate_types(),
        "aggregate_id": st.none() | aggregate_ids(),
        "tenant_id": st.none() | aggregate_ids(),
        "headers": st.none() | headers(),
        "event_id": st.none() | st.uuids(),
        "occurred_at": st.none() | moments(),
        "idempotency_key": st.none() | idempotency_keys(),
    }
    if unknown := fields.keys() - own.keys() - {"content_type"}:
        raise TypeError(
            f"events() takes no strategy for {', '.join(sorted(unknown))}: use {', '.join(own)}, content_type"
        )
    plain = st.builds(_event, st.fixed_dictionaries({**own, **fields}))
    return plain | st.builds(_event, _waiting({**own, **fields})) if delayed else plain


def _texts(min_size: int = 0, max_size: int | None = None) -> SearchStrategy[str]:
    return st.text(_CHARACTERS, min_size=min_size, max_size=max_size)


def _nested(inner: SearchStrategy[Any]) -> SearchStrategy[Any]:
    return st.lists(inner, max_size=4) | st.dictionaries(_texts(), inner, max_size=4)


def _waiting(fields: dict[str, SearchStrategy[Any]]) -> SearchStrategy[dict[str, Any]]:
    """Return a Hypothesis strategy for fields of events with a delayed delivery: after a duration, or at a point in
    time."""
    # The moment is not before the event occurred.
    delays = st.timedeltas(timedelta(microseconds=1), MAX_DELAY)
    before = st.datetimes(_FIRST, _PAST - timedelta(days=2), timezones=_ZONES)
    after = st.datetimes(_PAST, _LAST, timezones=_ZONES)
    by_delay = st.fixed_dictionaries({**fields, "deliver_after": delays})
    by_moment = st.fixed_dictionaries({**fields, "occurred_at": before, "available_at": after})
    in_future = {"occurred_at": st.none(), "available_at": st.datetimes(_FUTURE, _LAST, timezones=_ZONES)}
    return by_delay | by_moment | st.fixed_dictionaries({**fields, **in_future})


def _event(fields: dict[str, Any]) -> Event:
    # Beside an aggregate type the aggregate id may be left out, but not be None.
    if fields["aggregate_id"] is None:
        fields = {name: value for name, value in fields.items() if name != "aggregate_id"}
    return Event(**fields)


def _full(name: str, character: str) -> dict[str, str]:
    """Return a dict with one header that nearly fills the size limit for all headers."""
    return {name: character * ((MAX_HEADERS - len(name.encode())) // len(character.encode()))}


def _size(given: dict[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) for name, value in given.items())
