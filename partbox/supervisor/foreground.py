"""Delivers in the foreground: a node for each database, with metrics, health checks and pages beside them."""

import logging
from collections.abc import Callable, Sequence

from partbox.db import connect
from partbox.observe.health.database_names import database_names
from partbox.observe.logs.log_event import log_event
from partbox.settings import Settings
from partbox.supervisor.running import run
from partbox.supervisor.service import unneeded
from partbox.supervisor.serving import Pages, served
from partbox.supervisor.supervisor import Supervisor

log = logging.getLogger("partbox")

Node = Callable[[str | None, str, bool], Supervisor]
"""Makes the node of a database: its DSN (None: that of the outbox), its name among several, with metrics or not."""


def deliver(
    settings: Settings, node: Node, dsns: Sequence[str], *, http: str | None, pages: Pages | None, until_empty: bool
) -> int:
    """Run a node for each of the DSNs until they end; the exit code. Without DSNs there is one, of the outbox's own.

    `http` is HOST:PORT, or "off"; None leaves it to the settings.
    """
    if not settings.enabled:
        text = "enabled is false: nothing is delivered; publishing works"
        log_event(log, "disabled", text)
        unneeded(text)
        return 0
    where = settings.http if http is None else None if http == "off" else http
    names = database_names([connect.resolve(dsn) for dsn in dsns]) if len(dsns) > 1 else [""]
    nodes = [node(dsn, name, where is not None) for dsn, name in zip(dsns or (None,), names, strict=True)]
    with served(where, nodes, pages):
        return run(nodes, until_empty=until_empty)
