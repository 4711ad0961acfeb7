"""The database of an outbox, whose schema is made at its first use where the settings say so."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from partbox.db import connect
from partbox.db.connect import Dsn

if TYPE_CHECKING:
    from partbox.settings import Settings


@dataclass(frozen=True, slots=True)
class OutboxDatabase:
    """The database of `dsn` (see `partbox.outbox` for its forms) under these settings.

    A method that takes another DSN is about that one; None is its own.
    """

    dsn: Dsn | None
    settings: "Settings"
    _migrated: set[Callable[[], str]] = field(default_factory=set, compare=False)

    def under(self, flags: Mapping[str, Any]) -> "OutboxDatabase":
        """A copy in which options of a command line win; None means not given. Raises SettingsError."""
        settings = self.settings.under(flags)
        return OutboxDatabase(self.dsn if flags.get("dsn") is None else settings.dsn, settings)

    def source(self, dsn: str | None = None) -> Callable[[], str]:
        """The source of the DSN of each new connection; an embedded server is started here."""
        chosen_dsn = dsn or self.dsn
        return connect.DsnSource(chosen_dsn if callable(chosen_dsn) else connect.resolve(chosen_dsn))

    def resolve(self, dsn: str | None = None) -> Callable[[], str]:
        """`source`, with the schema made."""
        source = self.source(dsn)
        self.prepare(dsn, source)
        return source

    def prepare(self, dsn: str | None, source: Callable[[], str]) -> None:
        """Make the schema in the database of `source`, which is that of `dsn`, unless that is done or not wanted."""
        if source in self._migrated or not self._is_wanted(dsn or self.dsn):
            return
        from partbox.db.schema.migrate import migrate

        migrate(source(), self.settings.schema_name)
        self._migrated.add(source)

    def _is_wanted(self, dsn: Dsn | None) -> bool:
        """`auto_migrate`; unless it is set, true for an embedded server, which is nobody else's."""
        if self.settings.origins["auto_migrate"] != "default":
            return self.settings.auto_migrate
        return isinstance(dsn, str) and dsn.startswith("embedded:")
