"""Says that connections are made anew, and why."""

import logging

from psycopg import Error

from partbox.db.deadline import HungError
from partbox.db.delivery.proof import ends_session
from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event

log = logging.getLogger("partbox.worker")


def tell_lost(error: Error | PartboxError, subscription: str, loop: str) -> None:
    """Log the loss of the connection that `loop` works on.

    Of one that hung, that nothing went on there until now; of one that may not see everything, that nothing goes on.
    """
    if isinstance(error, HungError):
        text = "a connection hangs, and nothing went on in the %s until now; all are made anew: %s"
        log_event(log, "connection_hung", text, loop, error, subscription=subscription, loop=loop)
    elif isinstance(error, PartboxError) or ends_session(error):
        text = (
            "not everything can be read or written, so nothing is, until this is mended (`partbox doctor` says how): %s"
        )
        log_event(log, "unseen", text, error, subscription=subscription)
    else:
        text = "the connection is lost and made anew: %s"
        log_event(log, "connection_lost", text, error, subscription=subscription)
