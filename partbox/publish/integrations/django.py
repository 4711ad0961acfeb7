"""The adapter of Django: `django.db.connection`, `connections[alias]`, and the wrappers behind them.

Django reports only commits (`on_commit`), and respects savepoints. It also reports a commit if PostgreSQL rolls back
after a caught error, so the hooks check the transaction's status. After a COMMIT without an answer, it calls
nothing."""

import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from django.conf import settings
from django.db import connections

from partbox.db import statements
from partbox.errors import PartboxError, PublishError
from partbox.publish import transaction
from partbox.publish.adapter import COMMIT, Adapter, Parameters
from partbox.publish.failures import TRANSACTION_FAILED
from partbox.publish.steps import Copy, Row
from partbox.publish.transaction_outcome import EndCallback, warn_unknown_outcome


class DjangoAdapter(Adapter):
    copies = True
    tells: Sequence[str] = (COMMIT,)
    remedy = "publish inside `with transaction.atomic():`, which ATOMIC_REQUESTS does for each request"
    untold = (
        "Django reports only commits, and only in `transaction.atomic()`; leave out after_rollback hooks, or publish "
        "inside `with outbox.transaction():`, which has a connection of its own"
    )

    def in_transaction(self) -> bool:
        conn = self.conn
        if conn.vendor != "postgresql":
            raise PublishError(f"database {conn.alias!r} is {conn.vendor}: publish on a PostgreSQL connection")
        if conn.needs_rollback:
            raise PublishError(TRANSACTION_FAILED)
        is_manual = not conn.get_autocommit() and not conn.in_atomic_block
        if is_manual:
            self.tells = ()
        if conn.connection is None:
            raise PublishError("the connection was closed inside the transaction: leave the block, and begin another")
        transaction.check_driver_status(conn.connection)
        return bool(is_manual or conn.in_atomic_block)

    def database(self) -> Hashable:
        return "django", self.conn.alias, self.conn.settings_dict["NAME"]

    def execute(self, statement: str, parameters: Parameters) -> Sequence[Row]:
        with self.conn.cursor() as cursor:
            cursor.execute(statement, parameters)
            return [] if cursor.description is None else cursor.fetchall()

    def copy(self, step: Copy) -> int:
        driver = self.conn.connection
        with transaction.closing_broken_copy(driver), self.conn.cursor() as cursor:
            with cursor.copy(step.statement.decode()) as copy:
                for piece in step.lines():
                    copy.write(piece)
            return int(cursor.rowcount)

    def on_commit(self, call: EndCallback) -> None:
        ((xid,),) = self.execute(statements.publish_xid().decode(), {})

        def call_if_committed() -> None:
            try:
                ((status,),) = self.execute(statements.published_status().decode(), {"xid": xid})
            except Exception as error:
                # The connection was lost after the COMMIT, which may have been a rollback.
                warn_unknown_outcome(1, error)
            else:
                # In a TestCase, the outermost transaction is still in progress.
                if status != "aborted":
                    call()

        self.conn.on_commit(call_if_committed, robust=True)

    def wake_after_commit(self, call: EndCallback) -> None:
        self.conn.on_commit(call, robust=True)


KINDS = {
    "ConnectionProxy": DjangoAdapter,
    "BaseDatabaseWrapper": DjangoAdapter,
    "BaseConnectionHandler": 'pass one of its connections, `connections["default"]`',
}


_BLANK = r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*"
_READ_STATEMENT = re.compile(
    _BLANK + r"(?:select|with|values|table|explain|show|set|declare|fetch|close|begin|savepoint|release|rollback)\b",
    re.IGNORECASE | re.DOTALL,
)
_WRITE_WITHIN = re.compile(r"\b(?:insert\s+into|update\s+\S+\s+set|delete\s+from|merge\s+into)\b", re.IGNORECASE)


@contextmanager
def refuse_foreign_writes(conn: Any) -> Iterator[None]:
    """Refuse all writes of this thread on other Django connections than `conn` while the block runs."""
    # Such a write raises PartboxError.
    with ExitStack() as stack:
        for each in connections.all() if settings.configured else ():
            stack.enter_context(each.execute_wrapper(partial(_execute_checked, conn)))
        yield


def _execute_checked(conn: Any, execute: Any, sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
    used = context["connection"]
    if used.connection is not conn and not _only_reads(str(sql)):
        raise PartboxError(
            f"a transactional handler cannot write on Django's connection {used.alias!r}, which has another "
            'transaction: write in the transaction of the handler, which transactional="django" shares with Django; or '
            "leave out transactional and use outbox.inbox in transaction.atomic() (see docs/django.md)"
        )
    return execute(sql, params, many, context)


def _only_reads(sql: str) -> bool:
    return _READ_STATEMENT.match(sql) is not None and _WRITE_WITHIN.search(sql) is None
