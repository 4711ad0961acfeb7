"""Import events: from another outbox table, each row once, while that is still written to, or from an archive."""

from partbox.imports.passes import BadRow, ImportResult, import_rows
from partbox.imports.plan import FIELDS, ImportPlan
from partbox.imports.restoring import ImportFilter, RestoreResult, restore_events

__all__ = [
    "FIELDS",
    "BadRow",
    "ImportFilter",
    "ImportPlan",
    "ImportResult",
    "RestoreResult",
    "import_rows",
    "restore_events",
]
