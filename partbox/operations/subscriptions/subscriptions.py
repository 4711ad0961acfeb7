"""Create, list, pause, resume, replay, drop."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import Any, NoReturn

from psycopg import Connection

from partbox.db.connect import check
from partbox.db.inspect.stats import subscription_list
from partbox.db.operator import subscriptions
from partbox.db.operator.subscriptions import Problem, Subscription
from partbox.db.session import require, session
from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event
from partbox.operations import arguments as asked
from partbox.operations import position
from partbox.operations.arguments import ArgumentError
from partbox.operations.position import Moment, ReplayPosition
from partbox.operations.subscriptions.quiet import Progress, quiet
from partbox.settings import Settings
from partbox.text.wording import counted

log = logging.getLogger("partbox.commands")

TIMEOUT = 60.0

Found = list[Subscription]

REFUSALS: dict[Problem, str] = {
    "missing": "was dropped by somebody else meanwhile",
    "resumed": "was resumed by somebody else meanwhile, and nothing was changed: repeat this",
    "owners": "was claimed by a worker meanwhile, and nothing was changed: repeat this",
    "instances": "has got a new worker process meanwhile, and nothing was changed: stop it and repeat this",
}


class Subscriptions:
    """The subscriptions of an outbox. Every call opens a connection of its own.

    What cannot be done raises PartboxError with the remedy; a database that cannot be reached raises psycopg.Error.
    Times are datetimes with a zone, or texts in ISO 8601. A `timeout` is seconds, a timedelta, or a text such as "2m".
    """

    def __init__(self, dsn: Callable[[], str], settings: Settings) -> None:
        self._dsn = dsn
        self._settings = settings
        self._schema = settings.schema_name

    def create(self, name: str, start: Moment = "beginning", types: Iterable[str | Enum] | None = None) -> None:
        """Make a subscription that gets what the log holds from the "beginning", from a time, or from "now" on.

        Now: what had committed before the call is not delivered; what commits after it is, once, also of transactions
        that were open. A time is that of publishing. `types`: only events of these types; None is all.
        """
        name, begin, wanted = position.name(name), position.start(start), position.types(types)
        with self._session() as conn:
            if begin.since is not None and subscriptions.reach(conn, self._schema, None, begin.since).ahead:
                raise ArgumentError("start", f'{start} lies in the future: give a time that is past, or "now"')
            if not subscriptions.create(conn, self._schema, name, *begin, wanted):
                raise PartboxError(
                    f"subscription {name!r} exists already in schema {self._schema!r}: choose another name, or drop it"
                )
        taken = "all types" if wanted is None else ", ".join(wanted)
        _tell("create", name, "created subscription %r from %s on, for %s", name, start, taken)

    def list(self) -> Found:
        """All subscriptions, by name."""
        with self._session() as conn:
            return subscription_list(conn, self._schema)

    def pause(self, name: str) -> bool:
        """Deliver nothing more until it is resumed: workers end what runs, and release; False if it was paused.

        What is published meanwhile waits in the log.
        """
        with self._session(name) as conn:
            changed = bool(subscriptions.pause(conn, self._schema, name))
        if changed:
            _tell("pause", name, "paused subscription %r", name)
        return changed

    def resume(self, name: str) -> bool:
        """Deliver again, from where it stood still; False if it was not paused. Workers notice within a heartbeat."""
        with self._session(name) as conn:
            changed = bool(subscriptions.resume(conn, self._schema, name))
        if changed:
            _tell("resume", name, "resumed subscription %r", name)
        return changed

    def replay(
        self,
        name: str,
        *,
        from_id: int | None = None,
        from_time: Moment | None = None,
        timeout: asked.Length = TIMEOUT,
        progress: Progress | None = None,
    ) -> int:
        """Deliver again, in order, everything from a record id or a time on; how many of 256 partitions were set back.

        It pauses the subscription, waits at most `timeout` until its workers have released everything, and lets it go
        on unless it was paused before. What is parked from there on (dead, retrying, waiting) is forgotten and comes
        anew, with all its attempts. PartboxError where a purge has removed records, and if the workers do not release
        in time: nothing is changed, and it goes on.
        """
        point, patience = position.point(from_id, from_time), asked.length("timeout", timeout)
        with self._session(name) as conn:
            self._check(conn, point)
            with self._quiet(conn, name, patience, progress, members=False) as paused_here:
                done = subscriptions.replay(conn, self._schema, name, *point, resume=paused_here)
                if done.purged is not None:
                    _refuse_purged(point, done.purged)
                if done.problem is not None:
                    _refuse(name, done.problem)
        text, of = "replay of subscription %r from %s on: %s set back", counted(done.rewound, "partition")
        _tell("replay", name, text, name, point, of)
        return done.rewound

    def drop(self, name: str, timeout: asked.Length = TIMEOUT, *, progress: Progress | None = None) -> None:
        """Delete a subscription with its cursors and parked records; the log stays as it is.

        Stop its workers first: it pauses it and waits at most `timeout` until they have released everything and ended.
        PartboxError if they have not: nothing is changed, and it goes on unless it was paused before.
        """
        patience = asked.length("timeout", timeout)
        with (
            self._session(name) as conn,
            self._quiet(conn, name, patience, progress, members=True),
        ):
            problem = subscriptions.drop(conn, self._schema, name)
            if problem is not None:
                _refuse(name, problem)
        _tell("drop", name, "dropped subscription %r", name)

    @contextmanager
    def _session(self, name: str | None = None) -> Iterator[Connection[Any]]:
        """A connection to the primary that may read the sequence; the subscription `name` exists there."""
        if name is not None:
            asked.text("subscription", name)
        with session(self._dsn, self._settings, "partbox subscription") as conn:
            check(conn, self._schema)
            if name is not None:
                require(conn, self._schema, name)
            yield conn

    def _quiet(
        self, conn: Connection[Any], name: str, timeout: float, progress: Progress | None, *, members: bool
    ) -> AbstractContextManager[bool]:
        return quiet(
            conn,
            self._schema,
            name,
            timeout=timeout,
            progress=progress,
            members=members,
            again=lambda: session(self._dsn, self._settings, "partbox subscription"),
        )

    def _check(self, conn: Connection[Any], point: ReplayPosition) -> None:
        """Refuse before anything is paused what cannot be done anyway."""
        reach = subscriptions.reach(conn, self._schema, *point)
        if reach.ahead:
            raise ArgumentError("from_time", f"{point} lies in the future: give a time that is past")
        if point.from_id is not None and point.from_id > reach.newest:
            raise PartboxError(f"{point} does not exist yet: the newest is record {reach.newest}")
        if reach.purged is not None:
            _refuse_purged(point, reach.purged)


def _refuse(name: str, problem: Problem) -> NoReturn:
    raise PartboxError(f"subscription {name!r} {REFUSALS[problem]}")


def _refuse_purged(point: ReplayPosition, purged: int) -> NoReturn:
    perhaps = "" if point.from_time is None else ", perhaps of that time or later"
    raise PartboxError(
        f"replay from {point} is not possible: a purge has removed records up to id {purged}{perhaps}; the lowest "
        f"possible is record {purged + 1}"
    )


def _tell(command: str, subscription: str, text: str, *arguments: object) -> None:
    log_event(log, "command", text, *arguments, command=f"subscription {command}", subscription=subscription)
