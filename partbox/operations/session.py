"""The base class of the operator commands, which opens their sessions on the primary."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from partbox.db.session import open_session, require_subscription
from partbox.db.sql import Conn
from partbox.observe.logs.log_event import log_event
from partbox.operations import arguments
from partbox.settings import Settings

log = logging.getLogger("partbox.commands")


class OperatorCommands:
    """The base class of groups of operator commands, which opens a database connection for each command.

    `_group_name` names the connections, which the server shows, and the commands in logs."""

    _group_name: ClassVar[str]

    def __init__(self, dsn: Callable[[], str], settings: Settings) -> None:
        self._dsn = dsn
        self._settings = settings
        self._schema = settings.schema_name

    @contextmanager
    def _open_session(self, subscription: str | None = None) -> Iterator[Conn]:
        """Open a database connection for one command. Raise PartboxError if the subscription does not exist."""
        if subscription is not None:
            arguments.check_text("subscription", subscription)
        with open_session(self._dsn, self._settings, f"partbox {self._group_name}") as conn:
            if subscription is not None:
                require_subscription(conn, self._schema, subscription)
            yield conn

    def _log_command(self, verb: str, subscription: str, text: str, *values: object) -> None:
        log_event(log, "command", text, *values, command=f"{self._group_name} {verb}", subscription=subscription)
