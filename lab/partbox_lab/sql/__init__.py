"""The statements of the lab, composed as those of partbox are."""

from functools import partial
from pathlib import Path
from typing import Final

from partbox.db import sql

query: Final = partial(sql.query, queries=Path(__file__).parent)
"""The named query, composed for a schema: see `partbox.db.sql.query`."""
