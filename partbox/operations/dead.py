"""Dead records for operators: list, replay, discard."""

from collections.abc import Callable
from enum import Enum
from typing import Any

from psycopg import Connection

from partbox.db.operator import dead
from partbox.db.operator.dead import DeadDetail, DeadGroup, DeadRecord, Filters
from partbox.errors import PartboxError
from partbox.operations import arguments
from partbox.operations.session import OperatorVerbs
from partbox.text.wording import counted

DONE = {"replay": "replayed", "discard": "discarded"}
MEANWHILE = "later events of their aggregates may have been delivered meanwhile"

Records = list[DeadRecord]
Groups = list[DeadGroup]
Progress = Callable[[int, int], None]
Act = Callable[[Connection[Any], str, str, list[int]], int]


class DeadRecords(OperatorVerbs):
    """The dead records of an outbox. Every call opens a connection of its own.

    The filters are those of `list` everywhere: `event_type`, `aggregate_type`, `aggregate_id`, and `older_than`, a
    timedelta, seconds or a text such as "2h", counted from death by the database's clock, `group`, that of one of
    `groups`, and `since` and `until`, between which they died: times, or lengths such as "2h", which ended now. An id
    is a record's (int) or an event's (UUID), also as text. What cannot be done raises PartboxError with the remedy; a
    database that cannot be reached raises psycopg.Error: no answer ever means "none".
    """

    _noun = "dead"

    def list(  # public: its filters are keywords
        self,
        event_type: str | Enum | None = None,
        aggregate_type: str | Enum | None = None,
        aggregate_id: str | None = None,
        older_than: arguments.Length | None = None,
        limit: int = 100,
        *,
        after: int | None = None,
        group: int | str | None = None,
        since: arguments.Bound | None = None,
        until: arguments.Bound | None = None,
        subscription: str = "default",
    ) -> Records:
        """At most `limit` dead records, oldest first, without payloads; `after`: those with higher record ids only."""
        filters = _filters(event_type, aggregate_type, aggregate_id, older_than, group, since, until)
        with self._session(subscription) as conn:
            filters = dead.resolved(conn, self._schema, filters)
            page = arguments.limit(limit), arguments.after(after)
            return dead.listed(conn, self._schema, subscription, filters, *page)

    def groups(  # public: its filters are keywords
        self,
        event_type: str | Enum | None = None,
        aggregate_type: str | Enum | None = None,
        aggregate_id: str | None = None,
        older_than: arguments.Length | None = None,
        limit: int = 100,
        *,
        group: int | str | None = None,
        since: arguments.Bound | None = None,
        until: arguments.Bound | None = None,
        subscription: str = "default",
    ) -> Groups:
        """At most `limit` groups of dead records that are alike, the most frequent first: of one event type, with one
        error but for the numbers and quoted parts in it."""
        filters = _filters(event_type, aggregate_type, aggregate_id, older_than, group, since, until)
        with self._session(subscription) as conn:
            filters = dead.resolved(conn, self._schema, filters)
            return dead.groups(conn, self._schema, subscription, filters, arguments.limit(limit))

    def count(  # public: its filters are keywords
        self,
        event_type: str | Enum | None = None,
        aggregate_type: str | Enum | None = None,
        aggregate_id: str | None = None,
        older_than: arguments.Length | None = None,
        *,
        group: int | str | None = None,
        since: arguments.Bound | None = None,
        until: arguments.Bound | None = None,
        subscription: str = "default",
    ) -> int:
        """The number of dead records that match."""
        filters = _filters(event_type, aggregate_type, aggregate_id, older_than, group, since, until)
        with self._session(subscription) as conn:
            return dead.count(conn, self._schema, subscription, dead.resolved(conn, self._schema, filters))

    def show(self, id: arguments.Id, *, payload: bool = False, subscription: str = "default") -> DeadDetail:
        """One dead record with its headers and times; with its payload, verbatim, only if `payload` is true."""
        with self._session(subscription) as conn:
            record_id = self._record(conn, subscription, id)
            found = dead.show(conn, self._schema, subscription, record_id, payload=payload)
            return found or self._refuse(conn, subscription, record_id)

    def replay(self, id: arguments.Id, *, subscription: str = "default") -> int:
        """Deliver a dead record again, with all its attempts and before every unstarted event of its aggregate: 1.

        Its last error is kept. Later events of the aggregate may have been delivered since it died.
        """
        with self._session(subscription) as conn:
            record_id = self._record(conn, subscription, id)
            if not dead.replay(conn, self._schema, subscription, [record_id]):
                self._refuse(conn, subscription, record_id)
        text = "replayed dead record %d of subscription %r; %s"
        self._log("replay", subscription, text, record_id, subscription, MEANWHILE)
        return 1

    def replay_all(  # public: its filters are keywords
        self,
        event_type: str | Enum | None = None,
        aggregate_type: str | Enum | None = None,
        aggregate_id: str | None = None,
        older_than: arguments.Length | None = None,
        *,
        group: int | str | None = None,
        since: arguments.Bound | None = None,
        until: arguments.Bound | None = None,
        subscription: str = "default",
        progress: Progress | None = None,
    ) -> int:
        """Replay all that are dead now and match; their number. In id order per aggregate, also against live traffic.

        Imported ones that no saved cursor has passed yet are left. It goes by transactions of about 500 records, each
        with whole aggregates; after each `progress(done, total)`
        is called. Interrupted, it has replayed whole aggregates; called again, it goes on with the others.
        """
        filters = _filters(event_type, aggregate_type, aggregate_id, older_than, group, since, until)
        return self._bulk("replay", dead.replay, filters, subscription, progress)

    def discard(self, id: arguments.Id, *, subscription: str = "default") -> int:
        """Give up a dead record for good: it is never delivered, and what it blocked goes on: 1."""
        with self._session(subscription) as conn:
            record_id = self._record(conn, subscription, id)
            if not dead.discard(conn, self._schema, subscription, [record_id]):
                self._refuse(conn, subscription, record_id)
        self._log("discard", subscription, "discarded dead record %d of subscription %r", record_id, subscription)
        return 1

    def discard_all(  # public: its filters are keywords
        self,
        event_type: str | Enum | None = None,
        aggregate_type: str | Enum | None = None,
        aggregate_id: str | None = None,
        older_than: arguments.Length | None = None,
        *,
        group: int | str | None = None,
        since: arguments.Bound | None = None,
        until: arguments.Bound | None = None,
        subscription: str = "default",
        progress: Progress | None = None,
    ) -> int:
        """Give up all that are dead now and match; their number."""
        filters = _filters(event_type, aggregate_type, aggregate_id, older_than, group, since, until)
        return self._bulk("discard", dead.discard, filters, subscription, progress)

    def _bulk(self, what: str, act: Act, filters: Filters, subscription: str, progress: Progress | None) -> int:
        """`act` on chunk after chunk, logged also where it ends early."""
        with self._session(subscription) as conn:
            filters = dead.resolved(conn, self._schema, filters)
            chunks = dead.chunks(conn, self._schema, subscription, filters, dead.CHUNK)
            done, total = 0, sum(map(len, chunks))
            try:
                for chunk in chunks:
                    done += act(conn, self._schema, subscription, chunk)
                    if progress is not None:
                        progress(done, total)
            finally:
                note = f"; {MEANWHILE}" if act is dead.replay else ""
                text, of = "%s %d of %s of subscription %r%s%s", counted(total, "dead record")
                self._log(f"{what} --all", subscription, text, DONE[what], done, of, subscription, filters, note)
        return done

    def _record(self, conn: Connection[Any], subscription: str, id: arguments.Id) -> int:
        """The record id of a record id, or of an event id that is that of one dead record."""
        parsed = arguments.record_or_event(id)
        if isinstance(parsed, int):
            return parsed
        found = dead.of_event(conn, self._schema, subscription, parsed)
        if not found:
            raise PartboxError(
                f"no dead record of event {parsed} in subscription {subscription!r}: "
                "`partbox dead list` shows those there are"
            )
        if len(found) > 1:
            several = ", ".join(map(str, found))
            raise PartboxError(f"event {parsed} has several dead records: name one by its record id: {several}")
        return found[0]

    def _refuse(self, conn: Connection[Any], subscription: str, record_id: int) -> DeadDetail:
        state = dead.state(conn, self._schema, subscription, record_id)
        if state == "dead":
            raise PartboxError(
                f"dead record {record_id} was imported, and no saved cursor has passed it yet: replayed now it would "
                "be dead again; try again when a worker has gone on"
            )
        now = f"; it is {state}" + ("" if state == "discarded" else " (see `partbox blocked list`)") if state else ""
        raise PartboxError(
            f"no dead record {record_id} in subscription {subscription!r}{now}: "
            "`partbox dead list` shows those there are"
        )


def _filters(
    event_type: str | Enum | None,
    aggregate_type: str | Enum | None,
    aggregate_id: str | None,
    older_than: arguments.Length | None,
    group: int | str | None,
    since: arguments.Bound | None,
    until: arguments.Bound | None,
) -> Filters:
    return Filters(
        None if event_type is None else arguments.kind("event_type", event_type),
        None if aggregate_type is None else arguments.kind("aggregate_type", aggregate_type),
        None if aggregate_id is None else arguments.text("aggregate_id", aggregate_id),
        None if older_than is None else arguments.length("older_than", older_than),
        None if group is None else arguments.group(group),
        arguments.bound("since", since),
        arguments.bound("until", until),
    )
