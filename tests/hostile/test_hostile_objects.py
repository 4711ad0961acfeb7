"""Objects of an application that answer the simplest questions with an error: nobody else notices, and none ends."""

from itertools import product

from deeds import DEEDS, Text, Thing, fails, first_time, hostile, made, throws
from house import DEAD, DONE, LATER, RETRIED

from partbox import Dead, Done, RetryAfter, RetryAfterError, UnrecoverableError
from partbox.outcomes import Ignore


def blind(name, attributes=False):
    """True if nobody can tell what a thing is that answers so, or (`attributes`) read an attribute of it."""
    if attributes and name.startswith("__getattribute__"):
        return True
    return name.startswith(("__class__", "__getattribute__")) and " odd " not in name


RAISED = {
    "an error": (Exception, (), RETRIED),
    "an exit": (SystemExit, (), RETRIED),
    "an error that is the end": (UnrecoverableError, ("no",), DEAD),
    "an error that asks for later": (RetryAfterError, (0.01,), RETRIED),
}


def test_an_exception_whose_attributes_misbehave_is_handled_like_any_other(house):
    for what, (kind, arguments, ending) in RAISED.items():
        for name, error in hostile(kind, *arguments):
            house.invite(f"{what}: {name}", first_time(throws(error)), RETRIED if blind(name) else ending)
    house.live()


SLOTS = ("__traceback__", "__cause__", "__context__", "__suppress_context__", "__notes__")


def of_many_causes():
    """Errors whose causes go round in circles, grow, or do not let themselves be looked at."""
    circle, link = ValueError("circle"), KeyError("link")
    circle.__cause__, link.__cause__ = link, circle
    yield "circle", circle
    deep = ValueError("the first")
    for number in range(1_000):
        following = ValueError(number)
        following.__context__, deep = deep, following
    yield "chain", deep
    for name, cause in hostile(Exception):
        if not name.startswith(("__str__", "__class__", "__getattribute__")):
            continue
        caused = ValueError("caused")
        caused.__cause__ = cause
        yield f"cause {name}", caused
        yield f"group {name}", ExceptionGroup("all", [cause, ValueError("other")])
    for slot, answer in product(SLOTS, ("raises", "exits", "recurses", "is an odd text")):
        yield f"{slot} {answer}", made(Exception, {slot: property(DEEDS[answer])})


def test_an_exception_with_a_broken_traceback_or_chain_of_causes_is_handled_like_any_other(house, caplog):
    caplog.set_level("DEBUG", "partbox")
    for name, error in of_many_causes():
        house.invite(name, first_time(throws(error)), RETRIED)
    house.live()


RETURNED = {
    "a thing": (Thing, (), RETRIED),
    "a list": (list, ([],), RETRIED),
    "done": (Done, (), DONE),
    "later": (RetryAfter, (0.01,), LATER),
    "dead": (Dead, ("no",), DEAD),
}


def test_a_handler_may_return_anything(house):
    for what, (kind, arguments, ending) in RETURNED.items():
        for name, outcome in hostile(kind, *arguments):
            unseen = blind(name, attributes=kind is RetryAfter)
            becomes = RETRIED if unseen else ending
            house.invite(f"{what}: {name}", first_time(lambda outcome=outcome: outcome), becomes)
    house.live()


def test_a_batch_handler_may_return_anything_as_its_list_of_outcomes(house):
    for name, outcomes in hostile(list, [None]):
        ending = RETRIED if name.startswith("__iter__") else None if name.startswith("__len__") else DONE
        house.invite(name, first_time(lambda outcomes=outcomes: outcomes), ending, batch=True)
    for name, thing in hostile(Thing):
        house.invite(f"no list: {name}", first_time(lambda thing=thing: thing), RETRIED, batch=True)
    for name, error in hostile(Exception):
        house.invite(f"in a list: {name}", first_time(lambda error=error: [error]), RETRIED, batch=True)
    house.live()


def test_an_on_error_callback_may_return_or_raise_anything(house):
    for kind in (Thing, Ignore):
        for name, advice in hostile(kind):
            sure = kind is Ignore and not blind(name)
            house.invite(
                f"{kind.__name__} {name}",
                first_time(fails),
                DONE if sure else RETRIED,
                on_error=lambda event, error, attempt, advice=advice: advice,
            )
    for name, error in hostile(BaseException):
        house.invite(f"advice fails: {name}", first_time(fails), on_error=lambda *_, error=error: throws(error)())
    house.live()


class Policy:
    """Says that, of an error and of a delay."""

    def __init__(self, retries, delay):
        self.retries, self.delay = retries, delay

    def should_retry(self, error):
        return self.retries() if callable(self.retries) else self.retries

    def next_delay(self, attempt):
        return self.delay() if callable(self.delay) else self.delay


def test_a_retry_policy_may_return_or_raise_anything(house):
    for name, verdict in hostile(Thing):
        house.invite(f"whether: {name}", first_time(fails), retry=Policy(lambda verdict=verdict: verdict, 0.01))
        house.invite(f"when: {name}", first_time(fails), retry=Policy(True, lambda verdict=verdict: verdict))
    for name, error in hostile(BaseException):
        house.invite(f"fails: {name}", first_time(fails), retry=Policy(throws(error), 0.01))
    for delay in (None, "soon", -1, float("nan"), float("inf"), 1e300, 10**400, 1j, [], Text("1"), True):
        house.invite(f"a delay of {str.__str__(str(delay))[:20]}", first_time(fails), retry=Policy(True, delay))
    house.live()
