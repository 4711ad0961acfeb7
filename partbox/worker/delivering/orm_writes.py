"""Keeps an ORM from writing beside the transaction of a transactional handler."""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from partbox.callables import Call


def within_its_transaction(call: Call) -> Call:
    """The call of a transactional handler; what Django would write on another connection is its error."""

    def guarded(event: Any, conn: Any) -> Any:
        with _refused(conn):
            return call(event, conn)

    return guarded


def _refused(conn: Any) -> AbstractContextManager[None]:
    if "django.db" not in sys.modules:  # asked each time: a handler's module may import it late
        return nullcontext()
    from partbox.publish.integrations.django import refused

    return refused(conn)
