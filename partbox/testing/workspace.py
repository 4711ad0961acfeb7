"""The place of tests: a server, and a fresh database for each test in turn."""

import atexit
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import uuid4

from partbox.db.connect import DsnSource
from partbox.testing.databases import Shelf
from partbox.testing.servers import UNDISTURBED, Originals, Prepare, new_template, places
from partbox.testing.sessions import Sessions

KEPT = "PARTBOX_TEST_ORIGINALS"
"""The variable with the name of the folder of data that the servers of a run are copied from."""
DSN = "PARTBOX_TEST_DSN"
"""The variable with the DSN of a server to use instead of an embedded one."""


@dataclass(frozen=True, slots=True)
class TestServer:
    """A server, by a role that may create databases, and the name of the template database of tests."""

    __test__ = False  # for pytest, which takes its name for that of a class of tests

    dsn: str
    template: str


@contextmanager
def server_of(dsn: str | None, schema: str, prepare: Prepare | None = None) -> Iterator[TestServer]:
    """The server of `dsn`, or of PARTBOX_TEST_DSN, or an embedded one; with a template for these tests."""
    with ExitStack() as stack:
        given = dsn or os.environ.get(DSN)
        found = DsnSource(given)() if given else stack.enter_context(_embedded())
        yield TestServer(found, stack.enter_context(new_template(found, schema, prepare)))


@contextmanager
def shelf_of(server: TestServer, sessions: Sessions | None) -> Iterator[Shelf]:
    """The databases of this server's template."""
    shelf = Shelf(server.dsn, server.template, sessions)
    try:
        yield shelf
    finally:
        shelf.close()


def forget_kept(name: str) -> None:
    """Delete the data that the servers of a run were copied from."""
    for place in places():
        shutil.rmtree(place / name, ignore_errors=True)


@contextmanager
def _embedded() -> Iterator[str]:
    originals = Originals(_kept())
    with originals.copied(originals.bare(), UNDISTURBED) as server:
        yield server.dsn


@cache
def _kept() -> Path:
    """The folder named by the process that started the run; else made here, and deleted at the end."""
    if KEPT not in os.environ:
        os.environ[KEPT] = name = f"pb-{uuid4().hex[:8]}"
        atexit.register(forget_kept, name)
    return places()[0] / os.environ[KEPT]
