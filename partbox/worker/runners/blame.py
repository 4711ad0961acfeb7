"""Finds the event to blame for a transaction that failed.

At the commit (a deferred constraint), or by what handlers did to the session, it may be any event's: then its events
run one by one until one does it again, and the error is that one's. So is the loss of the transaction to a handler that
ends it, or closes the connection; a connection that breaks is an event's error only if the same event sees it break
twice in a row.
"""

from psycopg import Connection, DatabaseError, Error, OperationalError

from partbox.events import DeliveredEvent
from partbox.worker.engine.reconnect import Pair


class GoneError(Error):
    """The transaction is not there any more after a handler ran."""

    def __init__(self, event: DeliveredEvent, result: object) -> None:
        self.pair: Pair = event.identity
        why = f": {result}" if isinstance(result, BaseException) else ""
        super().__init__(f"the handler of {event!r} left no transaction behind{why}")


class Blame:
    """The blame for failed transactions of one process. The transactor's thread only."""

    def __init__(self) -> None:
        self._alone = 0  # so many events run one at a time
        self._guilty: dict[Pair, BaseException] = {}
        self._broke_at: Pair | None = None  # the event whose handler saw the connection break, if none has ended since

    def most(self, most: int) -> int:
        """The events that the next transaction may have, of usually so many."""
        return 1 if self._alone else most

    def take_error(self, event: DeliveredEvent) -> BaseException | None:
        """The error that this event has brought about; it is its result now."""
        return self._guilty.pop(event.identity, None)

    def committed(self, events: int) -> None:
        """A transaction of so many events has committed."""
        self._alone = max(0, self._alone - events)
        self._broke_at = None

    def lost(self, conn: Connection[object], error: GoneError) -> None:
        """A handler left no transaction behind."""
        if not conn.broken or self._broke_at == error.pair:
            self._guilty[error.pair] = RuntimeError(str(error))
        self._broke_at = error.pair

    def failed(self, pairs: list[Pair], error: Error, *, saved: bool) -> None:
        """A transaction of these events failed at its end; `saved`: after the save, at the commit.

        Handlers have brought it about: at the commit always, before it unless the server was the matter.
        """
        if not saved and (not isinstance(error, DatabaseError) or isinstance(error, OperationalError)):
            return
        self._alone = len(pairs)
        if len(pairs) == 1:
            # The commit has raised it, not the handler: its frames are ours alone.
            self._guilty[pairs[0]], self._alone = error.with_traceback(None), 0
