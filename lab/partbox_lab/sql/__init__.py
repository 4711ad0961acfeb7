from functools import partial
from pathlib import Path
from typing import Final

from partbox.db import sql

query: Final = partial(sql.query, queries=Path(__file__).parent)
