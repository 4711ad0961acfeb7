"""Import: the rows of a hand-written outbox table become records, each once, while it is still written to.

Or the events of an archive do, which had left the log.
"""

from partbox.imports.passes import BadRow, ImportResult, import_rows
from partbox.imports.plan import FIELDS, ImportPlan
from partbox.imports.restoring import ImportFilter, RestoreResult, restore

__all__ = ["FIELDS", "BadRow", "ImportFilter", "ImportPlan", "ImportResult", "RestoreResult", "import_rows", "restore"]
