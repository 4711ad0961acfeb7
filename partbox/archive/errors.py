"""Errors of an archive, in one line with the remedy: of a place, and of a missing library."""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from partbox import platform
from partbox.errors import PartboxError, SettingsError
from partbox.text.printing import shorten_line
from partbox.text.secrets import mask_secrets
from partbox.text.wording import shorten_text

MAX_ERROR_LENGTH: Final = 300
# Name and content of the file that is written before an archive is kept.
PROBE_NAME: Final = ".partbox-probe"
PROBE_CONTENT: Final = b"partbox tries whether records can be archived here\n"

REMEDIES: Final = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there",
    errno.ENOENT: "create it, or name another place",
    errno.ENOTDIR: "name a directory",
    errno.EACCES: "give this user access to it",
    errno.EPERM: "give this user access to it",
    errno.EROFS: "mount it so that it can be written",
}

# The module of the standard library, and its backport for older versions.
ZSTD: Final = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


@contextmanager
def explain_location_errors(place: str) -> Iterator[None]:
    """Turn every error in the block into a `PartboxError` that names the archive's location and a remedy."""
    # A `PartboxError` passes unchanged.
    try:
        yield
    except PartboxError:
        raise
    # Libraries of remote places raise exceptions of any type.
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        text = shorten_line(
            shorten_text(mask_secrets(reason or type(error).__name__), MAX_ERROR_LENGTH), MAX_ERROR_LENGTH
        )
        raise PartboxError(f"archive {place!r}: {text}: {_find_remedy(error)}") from error


def _find_remedy(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return REMEDIES[errno.ENOENT]
    if isinstance(error, PermissionError):
        return REMEDIES[errno.EACCES]
    number = error.errno if isinstance(error, OSError) else None
    return REMEDIES.get(number or 0, "check that it can be reached, and check the credentials")


def import_library(module: str, extra: str = "archive") -> Any:
    """Import an optional library that the archive needs. Raise `SettingsError` if it is not installed."""
    # The error has the remedy.
    try:
        return platform.library(module, extra, f"the archive needs the library {module}")
    except ModuleNotFoundError as missing:
        if missing.name != "_zstd":
            raise
        raise SettingsError("the archive needs compression.zstd: build this Python again, with libzstd") from None
