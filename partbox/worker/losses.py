"""Says that connections are made anew, and why."""

import logging

from psycopg import Error

from partbox.db.deadline import HungError
from partbox.observe.logs.log_event import log_event

log = logging.getLogger("partbox.worker")


def tell_lost(error: Error, subscription: str, loop: str) -> None:
    """Log the loss of the connection that `loop` works on; of one that hung, that nothing went on there until now."""
    if isinstance(error, HungError):
        text = "a connection hangs, and nothing went on in the %s until now; all are made anew: %s"
        log_event(log, "connection_hung", text, loop, error, subscription=subscription, loop=loop)
    else:
        text = "the connection is lost and made anew: %s"
        log_event(log, "connection_lost", text, error, subscription=subscription)
