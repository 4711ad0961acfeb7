"""Import: the rows of a hand-written outbox table become records, each once, while it is still written to.

Or the events of an archive do, which had left the log.
"""

from partbox.imports.passes import Bad, Imported, import_rows
from partbox.imports.plan import FIELDS, ImportPlan
from partbox.imports.restoring import Restored, WantedEvents, restore

__all__ = ["FIELDS", "Bad", "ImportPlan", "Imported", "Restored", "WantedEvents", "import_rows", "restore"]
