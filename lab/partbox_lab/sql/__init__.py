"""The SQL statements of the lab, composed as partbox composes its own."""

from functools import partial
from pathlib import Path
from typing import Final

from partbox.db import sql

# Returns a named query, composed for a schema: see `partbox.db.sql.query`.
query: Final = partial(sql.load_query, queries=Path(__file__).parent)
