"""How a transaction ends, for those who want to know: hooks, and workers to be woken.

psycopg and asyncpg do not tell how a transaction of their connection ended. Who opens it through
`outbox.transaction(conn)` is told, and by then it must be known which of the published batches were taken back with a
savepoint, whoever made that: psycopg, SQLAlchemy or plain SQL. So every batch notes its number in a setting that is
local to the transaction, which PostgreSQL takes back together with the savepoint, and the setting is read just before
the commit. That costs a statement for each batch and one for the commit, and only where after_commit or
after_rollback hooks are. The setting grows by a few characters a batch, which is felt from ten thousand batches in
one transaction on. (To ask for the events instead would need an index on their ids and a privilege that publishers do
not have; psycopg's own count of savepoints is private and does not see those made in SQL.)
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

Call = Callable[[], Any]
"""Returns an awaitable where it was registered on an asynchronous connection; raises nothing."""


class EndReporter(Protocol):
    """What a connection that can report its end offers: that half of the adapter protocol which hooks need.

    A call is made once the transaction is over: `on_commit` if what was written before it was registered is committed,
    `on_rollback` if it was taken back, with a savepoint or the whole.
    """

    def mark(self) -> int | None:
        """The number to be noted in the transaction before calls are registered; None if it is not needed."""

    def on_commit(self, call: Call) -> None: ...

    def on_rollback(self, call: Call) -> None: ...

    def wakes(self, call: Call) -> None:
        """Make the call once after a commit, however often it is registered, savepoints aside."""


class TransactionEnd:
    """The end of a transaction whose savepoints nobody keeps account of."""

    def __init__(self) -> None:
        self._marks = 0
        self._calls: list[tuple[int, bool, Call]] = []
        self._wakes: dict[Call, None] = {}

    @property
    def marked(self) -> bool:
        """Whether it matters what savepoints have taken back."""
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
        """What is to be called now. `marks` is what the transaction answered for them just before its commit."""
        if committed:
            yield from self._wakes
        kept = {int(mark) for (text,) in marks for mark in (text or "").split()} if committed else set()
        for mark, if_committed, call in self._calls:
            if (mark in kept) == if_committed:
                yield call


_open: dict[int, tuple[Any, TransactionEnd]] = {}
"""By the id of the connection, which is held here so that no other gets its id: not all can be referred to weakly."""


def begin(conn: Any) -> TransactionEnd:
    """From now on `conn` can report its end, until `forget`."""
    _open[id(conn)] = conn, TransactionEnd()
    return _open[id(conn)][1]


def of(conn: Any) -> TransactionEnd | None:
    """Who reports how the transaction of `conn` ends; None if nobody can."""
    found = _open.get(id(conn))
    return None if found is None else found[1]


def forget(conn: Any) -> None:
    _open.pop(id(conn), None)
