"""The database of an outbox, whose schema is created at first use if the settings say so."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from partbox.db import connect
from partbox.db.connect import Dsn

if TYPE_CHECKING:
    from partbox.settings import Settings


@dataclass(frozen=True, slots=True)
class OutboxDatabase:
    """The database of an outbox: its connection string (DSN) and settings.

    - `dsn`: see `partbox.outbox`
    - Methods that take a `dsn` use that instead. None means the outbox's own."""

    dsn: Dsn | None
    settings: "Settings"
    _migrated: set[Callable[[], str]] = field(default_factory=set, compare=False)

    def with_flags(self, flags: Mapping[str, Any]) -> "OutboxDatabase":
        """Return a copy whose settings are overridden by command-line options."""
        # None means that an option was not given. Raise `SettingsError`.
        settings = self.settings.under(flags)
        return OutboxDatabase(self.dsn if flags.get("dsn") is None else settings.dsn, settings)

    def build_dsn_source(self, dsn: str | None = None) -> Callable[[], str]:
        """Return a callable that gives the DSN for each new connection."""
        # If the DSN asks for an embedded server, the server is started here.
        chosen_dsn = dsn or self.dsn
        return connect.DsnSource(chosen_dsn if callable(chosen_dsn) else connect.resolve_dsn(chosen_dsn))

    def resolve_dsn(self, dsn: str | None = None) -> Callable[[], str]:
        """Migrate the schema if wanted, then return a callable that gives the DSN for each connection."""
        # The settings say whether the migration is wanted.
        source = self.build_dsn_source(dsn)
        self.prepare_schema(dsn, source)
        return source

    def prepare_schema(self, dsn: str | None, source: Callable[[], str]) -> None:
        """Create or migrate the outbox's schema once, if the settings want automatic migration."""
        # The schema is in the database of `source` (the source of `dsn`).
        if source in self._migrated or not self._is_wanted(dsn or self.dsn):
            return
        from partbox.db.schema.migrate import migrate

        migrate(source(), self.settings.schema_name)
        self._migrated.add(source)

    def _is_wanted(self, dsn: Dsn | None) -> bool:
        # The setting `auto_migrate` decides whether the schema is migrated automatically.
        # Unset, it is True for an embedded server, which only this application uses.
        if self.settings.origins["auto_migrate"] != "default":
            return self.settings.auto_migrate
        return isinstance(dsn, str) and dsn.startswith("embedded:")
