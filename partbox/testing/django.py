"""A kit for Django's test cases, on the database that Django has created for the tests.

    class OrderTest(PartboxMixin, django.test.TransactionTestCase):
        outbox = shop.outbox

A TestCase runs in a transaction that is rolled back at its end, so no worker sees the events that it publishes. There,
`self.drain()` is refused, and `self.handle()` calls the handlers with the events instead."""

from typing import TYPE_CHECKING, Any, ClassVar

from django.db import connections
from psycopg.conninfo import make_conninfo

from partbox.db.schema.migrate import migrate
from partbox.errors import PartboxError
from partbox.outbox import Outbox
from partbox.testing.kit import Kit
from partbox.testing.outcomes import Drained
from partbox.testing.published import Published

if TYPE_CHECKING:
    from django.test import SimpleTestCase as _Case
else:
    _Case = object

_NOT_PARAMETERS = ("context", "cursor_factory", "server_side_binding", "prepare_threshold", "row_factory", "autocommit")


class PartboxMixin(_Case):
    """A mixin for Django tests that publish or handle events, placed before `TestCase` or `TransactionTestCase`.

    `outbox` is the application's outbox, and `using` is the alias of its database."""

    outbox: ClassVar[Outbox]
    using: ClassVar[str] = "default"
    kit: Kit

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        migrate(dsn_of(cls.using), cls.outbox.settings.schema_name)

    def setUp(self) -> None:
        super().setUp()
        self.kit = Kit(self.outbox, dsn_of(self.using))
        self.addCleanup(self.kit.close)
        self.kit.forget()

    def published(self, event_type: Any = None, **wanted: Any) -> Published:
        """Return the events that the test has published, also in Django's open transaction.

        The result has the form of `Kit.published`."""
        return self.kit.published(event_type, conn=connections[self.using], **wanted)

    def drain(self, subscription: str = "default") -> Drained:
        """Deliver the events that are due now, like `Kit.drain`. Raise PartboxError inside a transaction.

        No worker sees the events of an open transaction."""
        if connections[self.using].in_atomic_block:
            raise PartboxError(
                "drain() does not see events published in an open transaction, and a TestCase never commits its "
                "transaction: use a TransactionTestCase, or self.handle()"
            )
        return self.kit.drain(subscription)

    def handle(self, event_type: Any = None, **wanted: Any) -> Drained:
        """Call the handlers with the test's published events that match, without saving outcomes or retrying.

        Events are handled as by `Kit.handle`: those that handlers publish follow. An event that this method has handled
        before is not handled again."""
        new = (event for event in self.published(event_type, **wanted) if not self.kit.has_handled(event))
        return self.kit.handle(*new, conn=connections[self.using])


def dsn_of(using: str) -> str:
    """Return the DSN of one of Django's databases. During tests it leads to the test database."""
    given = connections[using].get_connection_params()
    return make_conninfo(**{name: value for name, value in given.items() if name not in _NOT_PARAMETERS})
