"""Libraries of brokers, which come with extras."""

from importlib import import_module
from typing import Any

from partbox.errors import SettingsError


def library(module: str, extra: str) -> Any:
    """The module; SettingsError with the remedy if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module}.".startswith(f"{missing.name}."):
            raise
        named = missing.name.partition(".")[0]
        raise SettingsError(f"sending there needs the library {named}: pip install 'partbox[{extra}]'") from None
