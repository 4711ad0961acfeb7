"""Import: the rows of a hand-written outbox table become records, each once, while it is still written to."""

from partbox.imports.passes import Bad, Imported, import_rows
from partbox.imports.plan import FIELDS, ImportPlan

__all__ = ["FIELDS", "Bad", "ImportPlan", "Imported", "import_rows"]
