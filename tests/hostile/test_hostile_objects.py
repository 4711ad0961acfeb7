"""Objects of an application that answer the simplest questions with an error: nobody else notices, and none ends."""

import pytest
from deeds import hostile
from house import DEAD, RETRIED

from partbox import Dead, Done, RetryAfter, RetryAfterError, UnrecoverableError
from partbox.outcomes import Ignore

BLIND = ("__class__", "__getattribute__")
"""Questions without an answer to which nobody can tell what a thing is."""


class Thing:
    """Of no kind that partbox knows."""


def once(deed):
    """A handler that does it at the first attempt, and then behaves."""

    def handle(event):
        return deed() if event.attempt == 1 else None

    return handle


def throws(error):
    def deed():
        raise error

    return deed


RAISED = {
    "an error": (Exception, (), RETRIED),
    "an exit": (SystemExit, (), RETRIED),
    "an error that is the end": (UnrecoverableError, ("no",), DEAD),
    "an error that asks for later": (RetryAfterError, (0.01,), RETRIED),
}
RETURNED = {
    "a thing": (Thing, (), RETRIED),
    "a text": (str, ("text",), RETRIED),
    "a list": (list, ([],), RETRIED),
    "done": (Done, (), None),
    "later": (RetryAfter, (0.01,), None),
    "dead": (Dead, ("no",), None),
    "an error": (ValueError, ("no",), RETRIED),
}


@pytest.mark.parametrize(("kind", "arguments", "ending"), RAISED.values(), ids=RAISED)
def test_an_error_that_cannot_be_looked_at_is_an_error_like_any_other(house, kind, arguments, ending):
    for name, error in hostile(kind, *arguments):
        house.invite(name, once(throws(error)), RETRIED if name.startswith(BLIND) and "odd" not in name else ending)
    house.live()
