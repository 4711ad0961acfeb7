"""Libraries of the archive, which come with extras."""

import sys
from importlib import import_module
from typing import Any, Final

from partbox.errors import SettingsError

ZSTD: Final = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
"""The standard library's, and the same before it was there."""


def library(module: str, extra: str = "archive") -> Any:
    """The module; SettingsError with the remedy if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name == "_zstd":
            raise SettingsError("the archive needs compression.zstd: build this Python again, with libzstd") from None
        if missing.name is None or missing.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise SettingsError(f"the archive needs the library {module}: pip install 'partbox[{extra}]'") from None
