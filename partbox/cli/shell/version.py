"""`partbox --version`: the versions that a bug report needs."""

import ctypes
import os
import platform
import sys
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn


def print_versions() -> NoReturn:
    sys.stdout.write(f"{format_versions()}\n")
    sys.exit()


def format_versions() -> str:
    implementation, libpq = _read_libpq()
    return (
        f"partbox {version('partbox')}, Python {platform.python_version()}, "
        f"psycopg {version('psycopg')} ({implementation}), libpq {libpq // 10_000}.{libpq % 10_000}"
    )


def _read_libpq() -> tuple[str, int]:
    # The result is the implementation, such as "c" or "binary", and the version of libpq, such as 170004.
    # The library is asked directly where possible, because an import of psycopg takes longer than all the rest.
    wanted = os.environ.get("PSYCOPG_IMPL", "").lower()
    for name in ("c", "binary"):
        spec = find_spec(f"psycopg_{name}") if wanted in ("", name) else None
        folders = spec.submodule_search_locations or () if spec is not None else ()
        for file in (each for folder in folders for each in Path(folder).glob("pq.*.so")):
            with suppress(OSError, AttributeError):
                return name, ctypes.CDLL(str(file)).PQlibVersion()
    from psycopg import pq

    return pq.__impl__, pq.version()
