"""Test cases for unittest, with a database and a kit for each test."""

import atexit
import unittest
from contextlib import ExitStack, closing
from typing import ClassVar

from partbox.outbox import Outbox
from partbox.testing.databases import Shelf
from partbox.testing.kit import Kit
from partbox.testing.servers import Prepare, server_of
from partbox.testing.sessions import Sessions

_stack = ExitStack()
_shelf_by_key: dict[tuple[str, str], tuple[Shelf, Sessions]] = {}


class _PartboxCase(unittest.TestCase):
    """The base class of unittest test cases that have an outbox and a test database.

    `outbox` is the application's outbox, by default a new one, and `dsn` leads to the test's database."""

    outbox: ClassVar[Outbox | None] = None
    dsn: str
    kit: Kit

    @classmethod
    def prepare(cls, dsn: str) -> None:
        """Create the application's own tables in the database from which the tests' databases are cloned.

        Override this method as needed."""

    def setUp(self) -> None:
        super().setUp()
        outbox = self.outbox or Outbox()
        shelf, sessions = _make_provider(type(self).prepare, outbox.settings.schema_name)
        self.dsn = shelf.lend()
        self.addCleanup(shelf.take_back)
        self.kit = Kit(outbox, self.dsn, sessions=sessions)
        self.addCleanup(self.kit.close)


class PartboxTestCase(_PartboxCase):
    """A unittest test case with an empty outbox in a test database of its own.

        class OrderTest(PartboxTestCase):
            outbox = shop.outbox

            def test_it(self):
                place_order(self.dsn, 7)
                self.kit.drain().assert_done()

    The test kit is `self.kit`, and the database's DSN is `self.dsn`."""


class PartboxAsyncTestCase(_PartboxCase, unittest.IsolatedAsyncioTestCase):
    """A test case like PartboxTestCase for async tests, which deliver events by `await self.kit.drain_async()`."""


def _make_provider(prepare: Prepare, schema: str) -> tuple[Shelf, Sessions]:
    """Return the provider of test databases, and of connections to them, for all test cases that need the same
    tables."""
    # The databases are on a server that runs until the process ends.
    key = (f"{prepare.__module__}.{prepare.__qualname__}", schema)
    if key not in _shelf_by_key:
        if not _shelf_by_key:
            atexit.register(_stack.close)
        sessions = _stack.enter_context(closing(Sessions()))
        server = _stack.enter_context(server_of(None, schema, prepare))
        shelf = _stack.enter_context(closing(Shelf(server.dsn, server.template, sessions)))
        _shelf_by_key[key] = shelf, sessions
    return _shelf_by_key[key]
