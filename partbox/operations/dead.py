"""Dead records for operators: list, replay, discard."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, TypedDict, Unpack

from partbox.classes import Instance
from partbox.db.operator import dead
from partbox.db.operator.dead import DeadDetail, DeadFilters, DeadGroup, DeadRecord
from partbox.db.sql import Conn
from partbox.errors import PartboxError
from partbox.operations import arguments
from partbox.operations.session import OperatorVerbs
from partbox.text.wording import counted

PAST_TENSE = {"replay": "replayed", "discard": "discarded"}
LOG_SUFFIX = {"replay": "; later events of their aggregates may have been delivered meanwhile", "discard": ""}

Kind = str | Enum | type[Instance] | None
Records = list[DeadRecord]
Groups = list[DeadGroup]
Progress = Callable[[int, int], None]
Act = Callable[[Conn, str, str, list[int], DeadFilters | None], int]


class DeadChoice(TypedDict, total=False):
    """The other filters of dead records, beside `event_type`, and the subscription for which they are dead."""

    aggregate_type: str | Enum | None
    aggregate_id: str | None
    older_than: arguments.Length | None
    group: int | str | None
    since: arguments.Bound | None
    until: arguments.Bound | None
    subscription: str


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "event_type": arguments.event_type,
    "aggregate_type": arguments.kind,
    "aggregate_id": arguments.text,
    "older_than": arguments.length,
    "group": lambda _, value: arguments.group(value),
    "since": arguments.bound,
    "until": arguments.bound,
}


class DeadRecords(OperatorVerbs):
    """The dead records of an outbox. Every call opens a connection of its own.

    A `choice` is the same keywords everywhere: the filters `aggregate_type`, `aggregate_id`, and `older_than`, a
    timedelta, seconds or a text such as "2h", counted from death by the database's clock, `group`, that of one of
    `groups`, and `since` and `until`, between which they died: times, or lengths such as "2h", which ended now; and
    `subscription`, which is "default" unless given. An id is a record's (int) or an event's (UUID), also as text. What
    cannot be done raises PartboxError with the remedy; a database that cannot be reached raises psycopg.Error: no
    answer ever means "none".
    """

    _noun = "dead"

    def list(
        self, event_type: Kind = None, *, limit: int = 100, after: int | None = None, **choice: Unpack[DeadChoice]
    ) -> Records:
        """At most `limit` dead records, oldest first, without payloads; `after`: those with higher record ids only."""
        with self._choose(event_type, choice) as choice_of_rows:
            return dead.list_records(*choice_of_rows, arguments.limit(limit), arguments.after(after))

    def groups(self, event_type: Kind = None, *, limit: int = 100, **choice: Unpack[DeadChoice]) -> Groups:
        """At most `limit` groups of dead records that are alike, the most frequent first: of one event type, with one
        error but for the numbers and quoted parts in it."""
        with self._choose(event_type, choice) as choice_of_rows:
            return dead.groups(*choice_of_rows, arguments.limit(limit))

    def count(self, event_type: Kind = None, **choice: Unpack[DeadChoice]) -> int:
        """The number of dead records that match."""
        with self._choose(event_type, choice) as choice_of_rows:
            return dead.count(*choice_of_rows)

    def show(self, id: arguments.Id, *, payload: bool = False, subscription: str = "default") -> DeadDetail:
        """One dead record with its headers and times; with its payload, verbatim, only if `payload` is true."""
        with self._session(subscription) as conn:
            record_id = self._find_record_id(conn, subscription, id)
            found = dead.show(conn, self._schema, subscription, record_id, payload=payload)
            return found or self._refuse(conn, subscription, record_id)

    def replay(self, id: arguments.Id, *, subscription: str = "default") -> int:
        """Deliver a dead record again, with all its attempts and before every unstarted event of its aggregate: 1.

        Its last error is kept. Later events of the aggregate may have been delivered since it died.
        """
        return self._change_one("replay", dead.replay, id, subscription)

    def replay_all(
        self, event_type: Kind = None, *, progress: Progress | None = None, **choice: Unpack[DeadChoice]
    ) -> int:
        """Replay all that are dead now and match; their number. In id order per aggregate, also against live traffic.

        Imported ones that no saved cursor has passed yet are left. It goes by transactions of about 500 records, each
        with whole aggregates; after each `progress(done, total)` is called. Interrupted, it has replayed whole
        aggregates; called again, it goes on with the others.
        """
        return self._change_all("replay", dead.replay, event_type, choice, progress)

    def discard(self, id: arguments.Id, *, subscription: str = "default") -> int:
        """Give up a dead record for good: it is never delivered, and what it blocked goes on: 1."""
        return self._change_one("discard", dead.discard, id, subscription)

    def discard_all(
        self, event_type: Kind = None, *, progress: Progress | None = None, **choice: Unpack[DeadChoice]
    ) -> int:
        """Give up all that are dead now and match; their number."""
        return self._change_all("discard", dead.discard, event_type, choice, progress)

    @contextmanager
    def _choose(self, event_type: Kind, choice: DeadChoice) -> Iterator[tuple[Conn, str, str, DeadFilters]]:
        """A connection, the schema, the subscription and the filters, all checked."""
        subscription = choice.pop("subscription", "default")
        given: dict[str, Any] = {"event_type": event_type, **choice}
        checked_filters = {
            name: check(name, given[name]) for name, check in CHECKS.items() if given.get(name) is not None
        }
        filters = DeadFilters(**given | checked_filters)  # refuses what is no filter
        with self._session(subscription) as conn:
            yield conn, self._schema, subscription, dead.resolve_times(conn, self._schema, filters)

    def _change_one(self, what: str, act: Act, id: arguments.Id, subscription: str) -> int:
        """`act` on one record; returns 1, or raises PartboxError."""
        with self._session(subscription) as conn:
            record_id = self._find_record_id(conn, subscription, id)
            if not act(conn, self._schema, subscription, [record_id], None):
                self._refuse(conn, subscription, record_id)
        text = "%s dead record %d of subscription %r%s"
        self._log(what, subscription, text, PAST_TENSE[what], record_id, subscription, LOG_SUFFIX[what])
        return 1

    def _change_all(self, what: str, act: Act, event_type: Kind, choice: DeadChoice, progress: Progress | None) -> int:
        """`act` on chunk after chunk, logged also where it ends early."""
        with self._choose(event_type, choice) as choice_of_rows:
            conn, schema, subscription, filters = choice_of_rows
            id_chunks = dead.id_chunks(*choice_of_rows, dead.CHUNK_SIZE)
            done, total = 0, sum(map(len, id_chunks))
            try:
                for chunk in id_chunks:
                    done += act(conn, schema, subscription, chunk, filters)
                    if progress is not None:
                        progress(done, total)
            finally:
                text, of = "%s %d of %s of subscription %r%s%s", counted(total, "dead record")
                self._log(
                    f"{what} --all",
                    subscription,
                    text,
                    PAST_TENSE[what],
                    done,
                    of,
                    subscription,
                    filters,
                    LOG_SUFFIX[what],
                )
        return done

    def _find_record_id(self, conn: Conn, subscription: str, id: arguments.Id) -> int:
        """The record id of a record id, or of an event id that is that of one dead record."""
        parsed = arguments.record_or_event(id)
        if isinstance(parsed, int):
            return parsed
        found = dead.ids_of_event(conn, self._schema, subscription, parsed)
        if not found:
            raise PartboxError(
                f"no dead record of event {parsed} in subscription {subscription!r}: "
                "`partbox dead list` shows those there are"
            )
        if len(found) > 1:
            several = ", ".join(map(str, found))
            raise PartboxError(f"event {parsed} has several dead records: name one by its record id: {several}")
        return found[0]

    def _refuse(self, conn: Conn, subscription: str, record_id: int) -> DeadDetail:
        parked_state = dead.parked_state(conn, self._schema, subscription, record_id)
        if parked_state == "dead":
            raise PartboxError(
                f"dead record {record_id} was imported, and no saved cursor has passed it yet: replayed now it would "
                "be dead again; try again when a worker has gone on"
            )
        now = (
            f"; it is {parked_state}" + ("" if parked_state == "discarded" else " (see `partbox blocked list`)")
            if parked_state
            else ""
        )
        raise PartboxError(
            f"no dead record {record_id} in subscription {subscription!r}{now}: "
            "`partbox dead list` shows those there are"
        )
