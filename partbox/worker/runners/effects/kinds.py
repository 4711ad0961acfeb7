"""The effects of one process: of each kind that its handlers need one, made anew for each session."""

from collections.abc import Collection
from importlib import import_module

from partbox.db.deadline import WatchedConnection
from partbox.db.sql import Conn
from partbox.handlers.transactional import TransactionKind
from partbox.worker.context import Context
from partbox.worker.runners.effects.effects import Effects
from partbox.worker.runners.event_loop import EventLoop

_PLACES = {
    TransactionKind.PSYCOPG: ("psycopg", "PsycopgEffects"),
    TransactionKind.ASYNC_PSYCOPG: ("async_psycopg", "AsyncPsycopgEffects"),
    TransactionKind.SQLALCHEMY: ("sqlalchemy", "SqlalchemyEffects"),
    TransactionKind.ASYNC_SQLALCHEMY: ("async_sqlalchemy", "AsyncSqlalchemyEffects"),
    TransactionKind.DJANGO: ("django", "DjangoEffects"),
}


class EffectsKinds:
    """The thread of the transactor has the effects; `check` and `lends` are for the poller's."""

    def __init__(self, context: Context, kinds: Collection[TransactionKind], loop: EventLoop) -> None:
        self._context = context
        self._loop = loop
        self._classes = {kind: _class(kind) for kind in kinds}
        self._session: WatchedConnection | None = None
        self._made: dict[TransactionKind, Effects] = {}

    @property
    def lends(self) -> bool:
        """True if they need a connection that is lent."""
        return any(each.lends for each in self._classes.values())

    def check(self, reading: Conn) -> None:
        """Raise SettingsError if one of them would not be in the database of `reading`."""
        for each in self._classes.values():
            each.check(reading)

    def of(self, kind: TransactionKind, session: WatchedConnection) -> Effects:
        """Return the effects of this kind in this session; they are made at the first call."""
        if session is not self._session:
            self.close()
            self._session = session
        found = self._made.get(kind)
        if found is None:
            found = self._made[kind] = self._classes[kind](self._context, session, self._loop)
        return found

    def interrupt(self) -> None:
        """Cancel what handlers await, for good. Any thread."""
        for each in list(self._made.values()):
            each.interrupt()

    def rest(self) -> None:
        """There is nothing to do for now."""
        for each in self._made.values():
            each.rest()

    def close(self) -> None:
        """Forget them: what comes next begins anew."""
        for each in self._made.values():
            each.close()
        self._made.clear()
        self._session = None


def _class(kind: TransactionKind) -> type[Effects]:
    module, name = _PLACES[kind]
    found: type[Effects] = getattr(import_module(f"partbox.worker.runners.effects.{module}"), name)
    return found
