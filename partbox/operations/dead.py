"""Dead records: list, count, show, replay and discard them."""

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
from partbox.operations.session import OperatorCommands
from partbox.text.wording import format_count

PAST_TENSE = {"replay": "replayed", "discard": "discarded"}
LOG_SUFFIX = {"replay": "; later events of such an aggregate may have been delivered meanwhile", "discard": ""}

Kind = str | Enum | type[Instance] | None
Records = list[DeadRecord]
Groups = list[DeadGroup]
Progress = Callable[[int, int], None]
Act = Callable[[Conn, str, str, list[int], DeadFilters | None], int]


class DeadChoice(TypedDict, total=False):
    """Keyword arguments that select dead records by aggregate, group, time of death and subscription.

    A filter that is missing or None matches all records."""

    aggregate_type: str | Enum | None
    aggregate_id: str | None
    older_than: arguments.Length | None
    group: int | str | None
    since: arguments.Bound | None
    until: arguments.Bound | None
    subscription: str


# The check of each filter. A check takes the name and the value.
CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "event_type": arguments.event_type_name,
    "aggregate_type": arguments.check_kind,
    "aggregate_id": arguments.check_text,
    "older_than": arguments.parse_length,
    "group": lambda _, value: arguments.parse_group(value),
    "since": arguments.parse_bound,
    "until": arguments.parse_bound,
}


class DeadRecords(OperatorCommands):
    """Commands on dead records, which are events whose delivery was given up.

    Filters are the event type and the keywords of `DeadChoice`. `older_than` is a timedelta, seconds or a text such as
    "2h", counted since death by the database's clock. `group` is the number of a group from `groups`. `since`
    (inclusive) and `until` (exclusive) bound the time of death; both are times, or lengths such as "2h" for two hours
    ago. An id is a record id (int) or an event id (UUID), also as text. An impossible command raises PartboxError with
    a remedy, an unreachable database raises psycopg.Error."""

    _group_name = "dead"

    def list(
        self, event_type: Kind = None, *, limit: int = 100, after: int | None = None, **choice: Unpack[DeadChoice]
    ) -> Records:
        """Return at most `limit` dead records (without payloads) in id order, with ids above `after`."""
        with self._choose(event_type, choice) as choice_of_rows:
            return dead.list_records(*choice_of_rows, arguments.check_limit(limit), arguments.check_after(after))

    def groups(self, event_type: Kind = None, *, limit: int = 100, **choice: Unpack[DeadChoice]) -> Groups:
        """Group dead records by event type and error, and return at most `limit` groups, the largest first. Errors that
        differ only in numbers and quoted parts count as the same."""
        with self._choose(event_type, choice) as choice_of_rows:
            return dead.list_groups(*choice_of_rows, arguments.check_limit(limit))

    def count(self, event_type: Kind = None, **choice: Unpack[DeadChoice]) -> int:
        """Return the number of dead records that match the filters."""
        with self._choose(event_type, choice) as choice_of_rows:
            return dead.count_records(*choice_of_rows)

    def show(self, id: arguments.Id, *, payload: bool = False, subscription: str = "default") -> DeadDetail:
        """Return one dead record with its headers and times, and with its unmasked payload if `payload` is True."""
        with self._open_session(subscription) as conn:
            record_id = self._find_record_id(conn, subscription, id)
            found = dead.load_detail(conn, self._schema, subscription, record_id, payload=payload)
            return found or self._refuse(conn, subscription, record_id)

    def replay(self, id: arguments.Id, *, subscription: str = "default") -> int:
        """Deliver a dead record again, with all its attempts. Return 1.

        The record comes before every unstarted event of its aggregate. Later events of the aggregate may have been
        delivered meanwhile. The last error is kept."""
        return self._change_one("replay", dead.replay, id, subscription)

    def replay_all(
        self, event_type: Kind = None, *, progress: Progress | None = None, **choice: Unpack[DeadChoice]
    ) -> int:
        """Deliver all dead records that match the filters again, and return their number.

        Records that die during the call are left out, and so are imported records that no saved cursor has passed yet.
        The records of an aggregate are replayed in id order, even while workers run. Each transaction takes about 500
        records, always whole aggregates, and is followed by a call of `progress(done, total)`. After an interruption, a
        second call replays the rest."""
        return self._change_all("replay", dead.replay, event_type, choice, progress)

    def discard(self, id: arguments.Id, *, subscription: str = "default") -> int:
        """Discard a dead record, so that it is never delivered and no longer blocks its aggregate. Return 1."""
        return self._change_one("discard", dead.discard, id, subscription)

    def discard_all(
        self, event_type: Kind = None, *, progress: Progress | None = None, **choice: Unpack[DeadChoice]
    ) -> int:
        """Discard all dead records that match the filters for good, and return their number. Records that die during
        the call are left out."""
        return self._change_all("discard", dead.discard, event_type, choice, progress)

    @contextmanager
    def _choose(self, event_type: Kind, choice: DeadChoice) -> Iterator[tuple[Conn, str, str, DeadFilters]]:
        """Check the filters of a command, open its database connection, and yield both."""
        # Yields the connection, the schema, the subscription and the checked filters.
        subscription = choice.pop("subscription", "default")
        given: dict[str, Any] = {"event_type": event_type, **choice}
        # An unknown keyword stays in `given`, so that DeadFilters raises TypeError.
        checked_filters = {
            name: check(name, given[name]) for name, check in CHECKS.items() if given.get(name) is not None
        }
        filters = DeadFilters(**given | checked_filters)
        with self._open_session(subscription) as conn:
            yield conn, self._schema, subscription, dead.resolve_times(conn, self._schema, filters)

    def _change_one(self, what: str, act: Act, id: arguments.Id, subscription: str) -> int:
        with self._open_session(subscription) as conn:
            record_id = self._find_record_id(conn, subscription, id)
            if not act(conn, self._schema, subscription, [record_id], None):
                self._refuse(conn, subscription, record_id)
        text = "%s dead record %d of subscription %r%s"
        self._log_command(what, subscription, text, PAST_TENSE[what], record_id, subscription, LOG_SUFFIX[what])
        return 1

    def _change_all(self, what: str, act: Act, event_type: Kind, choice: DeadChoice, progress: Progress | None) -> int:
        with self._choose(event_type, choice) as choice_of_rows:
            conn, schema, subscription, filters = choice_of_rows
            id_chunks = dead.list_id_chunks(*choice_of_rows, dead.CHUNK_SIZE)
            done, total = 0, sum(map(len, id_chunks))
            try:
                for chunk in id_chunks:
                    done += act(conn, schema, subscription, chunk, filters)
                    if progress is not None:
                        progress(done, total)
            finally:
                # Chunks that are committed stay, so the number is logged even if a later chunk fails.
                text, of = "%s %d of %s of subscription %r%s%s", format_count(total, "dead record")
                self._log_command(
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
        parsed = arguments.parse_record_or_event(id)
        if isinstance(parsed, int):
            return parsed
        found = dead.list_ids_of_event(conn, self._schema, subscription, parsed)
        if not found:
            raise PartboxError(
                f"no dead record of event {parsed} in subscription {subscription!r}: "
                "`partbox dead list` shows the dead records"
            )
        if len(found) > 1:
            several = ", ".join(map(str, found))
            raise PartboxError(f"event {parsed} has several dead records: name one by its record id: {several}")
        return found[0]

    def _refuse(self, conn: Conn, subscription: str, record_id: int) -> DeadDetail:
        # The error has the reason why the record can be neither shown, replayed nor discarded, for instance because it
        # is not dead.
        parked_state = dead.find_parked_state(conn, self._schema, subscription, record_id)
        if parked_state == "dead":
            raise PartboxError(
                f"dead record {record_id} was imported, and no saved cursor has passed it yet: replayed now, it "
                "would become dead again; try again when a worker has saved its progress"
            )
        now = (
            f"; it is {parked_state}" + ("" if parked_state == "discarded" else " (see `partbox blocked list`)")
            if parked_state
            else ""
        )
        raise PartboxError(
            f"no dead record {record_id} in subscription {subscription!r}{now}: "
            "`partbox dead list` shows the dead records"
        )
