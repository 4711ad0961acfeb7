"""The end of a transaction, for hooks and for workers to be woken.

psycopg and asyncpg do not report how a transaction ended; `outbox.transaction(conn)` does. By then it must know which
batches were undone by a rollback to a savepoint, whether made by psycopg, SQLAlchemy or plain SQL. So every batch adds
its number to a setting local to the transaction, which PostgreSQL reverts together with the savepoint, and the setting
is read just before the commit. That costs a statement for each batch and one for the commit, and only if there are
after_commit or after_rollback hooks. The setting grows by a few characters a batch, which is noticeable from ten
thousand batches in one transaction. (Querying the events instead would need an index on their ids and a privilege that
publishers do not have; psycopg's own count of savepoints is private and misses those made in SQL.)
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

Call = Callable[[], Any]
"""Returns an awaitable where it was registered on an asynchronous connection; raises nothing."""


class EndReporter(Protocol):
    """Reports the end of a transaction: the half of the adapter protocol that hooks need.

    A call is made once the transaction is over: `on_commit` if the writes before its registration are committed,
    `on_rollback` if they are rolled back, to a savepoint or entirely.
    """

    def mark(self) -> int | None:
        """The number to add to the transaction's setting before calls are registered; None if not needed."""

    def on_commit(self, call: Call) -> None: ...

    def on_rollback(self, call: Call) -> None: ...

    def wakes(self, call: Call) -> None:
        """Make the call once after a commit, however often it is registered; savepoints are ignored."""


class TransactionEnd:
    """The end of a transaction whose savepoints no library tracks."""

    def __init__(self) -> None:
        self._marks = 0
        self._calls: list[tuple[int, bool, Call]] = []
        self._wakes: dict[Call, None] = {}

    @property
    def marked(self) -> bool:
        """True if the marks must be read before the commit."""
        return self._marks > 0

    def mark(self) -> int:
        self._marks += 1
        return self._marks

    def on_commit(self, call: Call) -> None:
        self._calls.append((self._marks, True, call))

    def on_rollback(self, call: Call) -> None:
        self._calls.append((self._marks, False, call))

    def wakes(self, call: Call) -> None:
        self._wakes[call] = None

    def calls(self, committed: bool, marks: list[tuple[str | None]]) -> Iterator[Call]:
        """The calls to make now. `marks`: the rows of the setting, read just before the commit."""
        if committed:
            yield from self._wakes
        kept = {int(mark) for (text,) in marks for mark in (text or "").split()} if committed else set()
        for mark, if_committed, call in self._calls:
            if (mark in kept) == if_committed:
                yield call


_open: dict[int, tuple[Any, TransactionEnd]] = {}
"""By the id of the connection, which is held here so that no other gets its id: not all allow weak references."""


def _bare(conn: Any) -> Any:
    """The one object of a connection that all proxies of it share: libpq's connection, or what the proxy wraps."""
    return getattr(conn, "pgconn", None) or getattr(conn, "__wrapped__", conn)


def begin(conn: Any) -> TransactionEnd:
    """Have the end of the transaction of `conn` reported, until `forget`."""
    bare, end = _bare(conn), TransactionEnd()
    _open[id(bare)] = bare, end
    return end


def of(conn: Any) -> TransactionEnd | None:
    """The end of the transaction of `conn`; None if it is not reported."""
    found = _open.get(id(_bare(conn))) if _open else None
    return None if found is None else found[1]


def forget(conn: Any) -> None:
    _open.pop(id(_bare(conn)), None)
