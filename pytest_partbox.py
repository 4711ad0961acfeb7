"""The pytest plugin of partbox (`pip install 'partbox[testing]'`): see docs/testing.md.

It stands beside the package, and imports it in its fixtures alone: a run that uses none of them loads nothing.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from psycopg import Connection

    from partbox import Outbox
    from partbox.testing import Kit
    from partbox.testing.databases import Shelf
    from partbox.testing.servers import Prepare, TestServer
    from partbox.testing.sessions import Sessions
    from partbox.testing.urls import Library

KEPT = "PARTBOX_TEST_ORIGINALS"  # as partbox.testing.servers names it


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("partbox")
    group.addoption(
        "--partbox-dsn",
        metavar="DSN",
        help="a PostgreSQL on which databases may be created, instead of an embedded one (or PARTBOX_TEST_DSN)",
    )
    parser.addini("partbox_dsn", "as --partbox-dsn, which wins", default="")
    parser.addini("partbox_outbox", "the application's outbox, such as shop:outbox; a new one unless given", default="")


def pytest_configure(config: pytest.Config) -> None:
    if KEPT not in os.environ:  # processes of pytest-xdist inherit it
        os.environ[KEPT] = f"pb-{os.urandom(4).hex()}"
        config.add_cleanup(_forget)


def _forget() -> None:
    name = os.environ.pop(KEPT)
    from tempfile import gettempdir

    if any(os.path.exists(os.path.join(place, name)) for place in (gettempdir(), "/tmp", "/var/tmp")):
        from partbox.testing.servers import forget_kept

        forget_kept(name)


@pytest.fixture(scope="session")
def partbox_outbox(pytestconfig: pytest.Config) -> "Outbox":
    """The outbox under test: that of `partbox_outbox` in the ini file, else a new one. Override it to give your own."""
    named = pytestconfig.getini("partbox_outbox")
    if not named:
        from partbox import Outbox

        return Outbox()
    module, _, name = named.partition(":")
    outbox: Any = getattr(import_module(module), name or "outbox", None)
    if outbox is None:
        raise pytest.UsageError(f"partbox_outbox = {named}: there is no such object; write module:name")
    return outbox  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def partbox_prepare() -> "Prepare | None":
    """Override it to return `prepare(dsn)`, which makes your own tables in the database that tests get clones of."""
    return None


@pytest.fixture(scope="session")
def partbox_server(
    pytestconfig: pytest.Config, partbox_outbox: "Outbox", partbox_prepare: "Prepare | None"
) -> "Iterator[TestServer]":
    """The server of the run: `dsn`, and `template`, the database that tests get clones of."""
    from partbox.testing.servers import server_of

    dsn = pytestconfig.getoption("--partbox-dsn") or pytestconfig.getini("partbox_dsn")
    with server_of(dsn, partbox_outbox.settings.schema_name, partbox_prepare) as server:
        yield server


@pytest.fixture(scope="session")
def partbox_sessions() -> "Iterator[Sessions | None]":
    """Connections of the kit that stay from test to test; override it to return None, and none do."""
    from partbox.testing.sessions import Sessions

    with closing(Sessions()) as sessions:
        yield sessions


@pytest.fixture(scope="session")
def _partbox_shelf(partbox_server: "TestServer", partbox_sessions: "Sessions | None") -> "Iterator[Shelf]":
    from partbox.testing.databases import Shelf

    with closing(Shelf(partbox_server.dsn, partbox_server.template, partbox_sessions)) as shelf:
        yield shelf


@pytest.fixture
def partbox_dsn(_partbox_shelf: "Shelf") -> Iterator[str]:
    """The DSN of a database for this test alone: your tables and an outbox in which nothing was published."""
    yield _partbox_shelf.lend()
    _partbox_shelf.take_back()


@pytest.fixture
def partbox_url(partbox_dsn: str) -> "Callable[[Library], str]":
    """Its URL, in the form that a library takes: `partbox_url("asyncpg")`, "psycopg", "psycopg2" or "sqlalchemy"."""
    from partbox.testing import url_of

    return lambda library: url_of(partbox_dsn, library)


@pytest.fixture
def partbox_conn(partbox_dsn: str) -> "Iterator[Connection[Any]]":
    """A connection to it. What the test does not commit is rolled back at its end."""
    import psycopg

    with psycopg.connect(partbox_dsn) as conn:
        yield conn
        conn.rollback()


@pytest.fixture
def partbox_kit(partbox_outbox: "Outbox", partbox_dsn: str, partbox_sessions: "Sessions | None") -> "Iterator[Kit]":
    """The kit: `published`, `drain`, `advance`, `fail_next` … The outbox is at the test's database until its end."""
    from partbox.testing import Kit

    with Kit(partbox_outbox, partbox_dsn, sessions=partbox_sessions) as kit:
        yield kit
