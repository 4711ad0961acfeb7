"""Makes the schema of a database at its first use, where the settings say so."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from partbox.settings import Settings

Dsn = str | Callable[[], str]


class AutoMigration:
    """Migrates each database once."""

    def __init__(self) -> None:
        self._migrated: set[Callable[[], str]] = set()

    def ensure(self, settings: "Settings", dsn: Dsn | None, given: Callable[[], str]) -> None:
        """Migrate the database of `dsn`, which `given` resolves, unless that is done or not wanted."""
        if given in self._migrated or not _wanted(settings, dsn):
            return
        from partbox.db.schema.migrate import migrate

        migrate(given(), settings.schema_name)
        self._migrated.add(given)


def _wanted(settings: "Settings", dsn: Dsn | None) -> bool:
    """`auto_migrate`; unless it is set, true for an embedded server, which is nobody else's."""
    if settings.origins["auto_migrate"] != "default":
        return settings.auto_migrate
    return isinstance(dsn, str) and dsn.startswith("embedded:")
