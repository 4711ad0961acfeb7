"""unittest: a database and a kit for each test.

class OrderTest(PartboxTestCase):
    outbox = shop.outbox

    def test_it(self):
        place_order(self.dsn, 7)
        self.kit.drain().assert_done()
"""

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


class _Partbox(unittest.TestCase):
    """`outbox` is the application's; a new one unless given. `dsn`: that of the test's database."""

    outbox: ClassVar[Outbox | None] = None
    dsn: str
    kit: Kit

    @classmethod
    def prepare(cls, dsn: str) -> None:
        """Override it to make your own tables in the database that tests get clones of."""

    def setUp(self) -> None:
        super().setUp()
        outbox = self.outbox or Outbox()
        shelf, sessions = _shelf(type(self).prepare, outbox.settings.schema_name)
        self.dsn = shelf.lend()
        self.addCleanup(shelf.take_back)
        self.kit = Kit(outbox, self.dsn, sessions=sessions)
        self.addCleanup(self.kit.close)


class PartboxTestCase(_Partbox):
    """A test case with `self.kit`, `self.dsn`, and an outbox in which nothing was published."""


class PartboxAsyncTestCase(_Partbox, unittest.IsolatedAsyncioTestCase):
    """The same for `async def` tests: `await self.kit.drain_async()`."""


def _shelf(prepare: Prepare, schema: str) -> tuple[Shelf, Sessions]:
    """The databases of all test cases with these tables; the server ends with the process."""
    key = (f"{prepare.__module__}.{prepare.__qualname__}", schema)
    if key not in _shelf_by_key:
        if not _shelf_by_key:
            atexit.register(_stack.close)
        sessions = _stack.enter_context(closing(Sessions()))
        server = _stack.enter_context(server_of(None, schema, prepare))
        shelf = _stack.enter_context(closing(Shelf(server.dsn, server.template, sessions)))
        _shelf_by_key[key] = shelf, sessions
    return _shelf_by_key[key]
