"""Libraries of the archive, which come with extras."""

from importlib import import_module
from typing import Any

from partbox.errors import SettingsError


def library(module: str, extra: str = "archive") -> Any:
    """The module; SettingsError with the remedy if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise SettingsError(f"the archive needs the library {missing.name}: pip install 'partbox[{extra}]'") from None
