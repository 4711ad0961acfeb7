"""The function `limit_by` may raise and return anything: its event counts as one without a value, and nothing ends."""

import asyncio
from collections import Counter
from enum import Enum

from deeds import Text, Thing, hostile, throws
from house import DONE

RETURNED = {
    "no number": float("nan"),
    "bytes": b"a",
    "a list": [1],
    "an odd text": Text("a" * 1_000_000),
    "a large number": 10**5_000,
    "a lone surrogate": "\ud800\0",
    "an Enum": Enum("Odd", {"A": object()}).A,
    "a tuple of odd parts": (Text("a"), (True, None)),
}


def test_limit_by_may_raise_and_return_anything(house, caplog):
    """Hashable and not comparable, a subclass whose `__eq__` exits, SystemExit, KeyboardInterrupt, GeneratorExit."""

    async def quietly(event):
        await asyncio.sleep(0)

    deeds = {name: lambda _, value=value: value for name, value in RETURNED.items()}
    raised = dict(hostile(BaseException)) | {
        each.__name__: each() for each in (SystemExit, KeyboardInterrupt, GeneratorExit)
    }
    deeds |= {f"raises {name}": lambda _, error=error: throws(error)() for name, error in raised.items()}
    for kind, *arguments in ((Thing,), (str, "a"), (int, 7), (tuple, ("a",))):
        deeds |= {f"{kind.__name__} {name}": lambda _, value=value: value for name, value in hostile(kind, *arguments)}
    for number, (name, deed) in enumerate(deeds.items()):
        handler = (lambda _: None, quietly)[number % 2]
        house.invite(name, handler, DONE, batch=number % 3 == 0, rate="500/s", at_once=2, limit_by=deed)
    house.live()
    name = "partbox.limit_by_failed"
    said = Counter(record.handler for record in caplog.records if getattr(record, "event", None) == name)
    assert said["of no number"] == said["of bytes"] == said["of a list"] == 1
    assert not said["of a large number"] + said["of an Enum"] + said["of an odd text"]
