"""What was published and what arrived of it."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from brokers import Received

from partbox import Outbox
from partbox.sinks import Sink

KEYS = 5


def key_of(number: int, keys: int = KEYS) -> str:
    return f"order/{number % keys} ü"


def publish(
    outbox: Outbox, conn: Any, events: Iterable[int], instead: Mapping[int, object] | None = None, keys: int = KEYS
) -> None:
    """Publish these in one transaction, some with another payload."""
    with conn.transaction():
        for number in events:
            payload = (instead or {}).get(number, {"n": number})
            outbox.publish(conn, "Placed", payload, aggregate_type="Order", aggregate_id=key_of(number, keys))


def arrived(place: Any) -> int:
    """How many events have arrived, each counted once."""
    return len({each.id for each in place.all()})


def states(conn: Any) -> set[str]:
    """Those of parked events."""
    return {state for (state,) in conn.execute("select distinct state from partbox.parked")}


def check(found: Sequence[Received], events: Iterable[int]) -> None:
    """Nothing is lost, those of a key are in order, and what came twice has the same id."""
    ids: dict[bytes, set[str]] = defaultdict(set)
    firsts: dict[str | None, list[int]] = defaultdict(list)
    for each in found:
        if not ids[each.value]:
            firsts[each.key].append(int(each.value[5:-1]))
        ids[each.value].add(each.id)
    published = {b'{"n":%d}' % number for number in events}
    assert not (lost := published - ids.keys()), f"{len(lost)} lost: {sorted(lost)[:20]}"
    assert not (others := ids.keys() - published), f"{len(others)} that nobody published: {sorted(others)[:20]}"
    assert not (several := {value: each for value, each in ids.items() if len(each) > 1}), f"other ids: {several}"
    wrong = {key: pair for key, values in firsts.items() for pair in pairwise(values) if pair[0] > pair[1]}
    assert not wrong, f"{len(wrong)} keys out of order: {dict([*wrong.items()][:20])}"


class Flight:
    """Tells when a sink is sending something. `at_most`: seconds in which the broker must answer, else the sink's."""

    def __init__(self, sink: Sink, monkeypatch: Any) -> None:
        self.at_most: float | None = None
        self._began = threading.Event()
        send = sink.send

        async def watched(messages: Any) -> Any:
            self._began.set()
            async with asyncio.timeout(self.at_most):
                return await send(messages)

        monkeypatch.setattr(sink, "send", watched)

    def expect(self) -> None:
        """Count from here on."""
        self._began.clear()

    def wait(self) -> None:
        """Until something has gone since."""
        assert self._began.wait(120)
