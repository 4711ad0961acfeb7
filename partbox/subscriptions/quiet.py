"""A subscription that stands still: paused, and nobody holds anything of it.

Workers release by themselves: at their next tick they see that nothing is assigned to them, start no further handler
and release each partition when its last one has ended. Dead ones release nothing, so they are buried here when their
lease is over; where no supervisor of the subscription is left nobody else would do it.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg import Connection, Error

from partbox.db import instances, subscriptions
from partbox.db.subscriptions import Holder
from partbox.errors import PartboxError
from partbox.observe.telling import tell
from partbox.rules.silence import Silence
from partbox.rules.wording import counted

log = logging.getLogger("partbox.commands")

LOOK = 0.05  # seconds between two looks at who still holds something
NAMED = 5

Progress = Callable[[Sequence[Holder]], None]
"""Called at every look with those that are waited for."""


@contextmanager
def quiet(
    conn: Connection[Any], schema: str, name: str, *, timeout: float, progress: Progress | None, members: bool
) -> Iterator[bool]:
    """While the block runs nobody owns a partition of it and, with `members`, it has no instance.

    Gives whether it was paused here. Then it goes on again if the wait is interrupted or the block raises. It stays
    paused if it does not stand still within `timeout` seconds, which is a PartboxError; and after the block.
    """
    paused_here = bool(subscriptions.pause(conn, schema, name))
    left: Sequence[Holder] = ()
    try:
        left = _wait(conn, schema, name, timeout, progress, members)
        if not left:
            yield paused_here
    except BaseException:
        if paused_here:
            _undo(conn, schema, name)
        raise
    if left:
        raise PartboxError(_stuck(name, timeout, left))


def described(left: Sequence[Holder]) -> str:
    """Who that is, in words for people."""
    names = [f"{each.node} {each.pid}" if each.node else "a dead process" for each in left]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _wait(
    conn: Connection[Any], schema: str, name: str, timeout: float, progress: Progress | None, members: bool
) -> Sequence[Holder]:
    """Nobody when it stands still; when the time is over, who is in the way."""
    silence, end = Silence(), time.monotonic() + timeout
    while True:
        found = subscriptions.holders(conn, schema, name)
        left = [holder for holder in found if members or holder.owned]
        if not left or time.monotonic() >= end:
            return left
        if progress is not None:
            progress(left)
        _bury(conn, schema, name, found, silence)
        time.sleep(LOOK)


def _bury(conn: Connection[Any], schema: str, name: str, found: Sequence[Holder], silence: Silence) -> None:
    """Whose lease is over goes, and what owners that are no instances any more have left is freed."""
    over = silence.over((each.beat for each in found if each.beat is not None), time.monotonic())
    if over or any(each.beat is None for each in found):
        buried, freed = instances.bury(conn, schema, over, known_dead=False)
        if freed:
            text, gone = "subscription %r: %s of dead processes may be claimed", len(buried)
            left = counted(freed, "partition")
            tell(log, "buried", text, name, left, subscription=name, instances=gone, partitions=freed)


def _undo(conn: Connection[Any], schema: str, name: str) -> None:
    try:
        subscriptions.resume(conn, schema, name)
    except Error as error:
        text = "subscription %r is left paused, `partbox subscription resume` lets it go on: %s"
        tell(log, "left_paused", text, name, error, subscription=name)


def _stuck(name: str, timeout: float, left: Sequence[Holder]) -> str:
    owners = [holder for holder in left if holder.owned]
    if owners:
        owned = sum(holder.owned for holder in owners)
        what = f"{owned} partition{'s are' if owned > 1 else ' is'} still owned by {described(owners)}"
        what, remedy = (
            f"{what}: handlers there have not ended",
            "wait for them, or end those processes, and repeat this",
        )
    else:
        what, remedy = f"worker processes still run for it: {described(left)}", "stop them and repeat this"
    return (
        f"subscription {name!r} is paused, but after {timeout:g} s {what}. It stays paused: {remedy}; "
        "`partbox subscription resume` lets it go on"
    )
