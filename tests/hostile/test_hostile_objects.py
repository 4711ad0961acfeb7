"""Objects of an application that answer the simplest questions with an error: nobody else notices, and none ends."""

from contextlib import contextmanager, suppress
from itertools import product

import psycopg
import pytest
from deeds import DEEDS, Text, hostile, made
from house import DEAD, DONE, LATER, RETRIED
from named import named
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from waiting import eventually

from partbox import Dead, Done, Event, RetryAfter, RetryAfterError, UnrecoverableError
from partbox.errors import PublishError
from partbox.observe import Observer
from partbox.outcomes import Ignore


class Thing:
    """Of no kind that partbox knows."""


def first_time(deed):
    """A handler that does it when it is called first, and then behaves."""
    left = [deed]
    return lambda given: left.pop()() if left else None


def throws(error):
    def deed():
        raise error

    return deed


def fails():
    raise ValueError("as planned")


def blind(name, attributes=False):
    """Whether nobody can tell what a thing is that answers so; or that has an attribute which is asked for."""
    if attributes and name.startswith("__getattribute__"):
        return True
    return name.startswith(("__class__", "__getattribute__")) and " odd " not in name


RAISED = {
    "an error": (Exception, (), RETRIED),
    "an exit": (SystemExit, (), RETRIED),
    "an error that is the end": (UnrecoverableError, ("no",), DEAD),
    "an error that asks for later": (RetryAfterError, (0.01,), RETRIED),
}


def test_an_error_that_cannot_be_looked_at_is_an_error_like_any_other(house):
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


def test_an_error_whose_story_cannot_be_told_is_an_error_like_any_other(house, caplog):
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


def test_what_a_handler_returns_may_be_anything(house):
    for what, (kind, arguments, ending) in RETURNED.items():
        for name, outcome in hostile(kind, *arguments):
            unseen = blind(name, attributes=kind is RetryAfter)
            becomes = RETRIED if unseen else ending
            house.invite(f"{what}: {name}", first_time(lambda outcome=outcome: outcome), becomes)
    house.live()


def test_a_list_of_outcomes_may_be_anything(house):
    for name, outcomes in hostile(list, [None]):
        ending = RETRIED if name.startswith("__iter__") else None if name.startswith("__len__") else DONE
        house.invite(name, first_time(lambda outcomes=outcomes: outcomes), ending, batch=True)
    for name, error in hostile(Exception):
        house.invite(f"in a list: {name}", first_time(lambda error=error: [error]), RETRIED, batch=True)
    house.live()


def test_advice_may_be_anything(house):
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


def test_a_retry_policy_may_say_anything(house):
    for name, verdict in hostile(Thing):
        house.invite(f"whether: {name}", first_time(fails), retry=Policy(lambda verdict=verdict: verdict, 0.01))
        house.invite(f"when: {name}", first_time(fails), retry=Policy(True, lambda verdict=verdict: verdict))
    for name, error in hostile(BaseException):
        house.invite(f"fails: {name}", first_time(fails), retry=Policy(throws(error), 0.01))
    for delay in (None, "soon", -1, float("nan"), float("inf"), 1e300, 10**400, 1j, [], Text("1"), True):
        house.invite(f"a delay of {str.__str__(str(delay))[:20]}", first_time(fails), retry=Policy(True, delay))
    house.live()


class Loud(Observer):
    """Raises whatever is next, in every hook."""

    def __init__(self, errors):
        self.errors = errors
        self.raised = 0

    def _raise(self):
        self.raised += 1
        raise self.errors[self.raised % len(self.errors)]


def _hook(self, *_):
    self._raise()


HOOKS = [name for name in vars(Observer) if not name.startswith("_") and name != "published"]
EVERYTHING = [
    SystemExit(3),
    GeneratorExit(),
    *(error for name, error in hostile(Exception) if "interrupts" not in name),  # in the main thread that is Ctrl-C
]


def test_observers_may_raise_anything(house):
    loud = type("Loudest", (Loud,), dict.fromkeys(HOOKS, _hook))(EVERYTHING)
    house.outbox.observe(loud)
    house.invite("it", first_time(fails))
    house.live()
    assert loud.raised > 100


class Around:
    """An observer's context manager, or an interceptor's, that fails at either end."""

    def __init__(self, enter, leave):
        self.enter, self.leave = enter, leave

    def __enter__(self):
        return self.enter()

    def __exit__(self, *_):
        return self.leave()


def test_what_an_observer_puts_around_a_handler_may_fail_at_either_end(house):
    ends = iter([lambda: None, *(throws(error) for error in EVERYTHING)] * 100)

    class Putting(Observer):
        def handling(self, events, handler):
            return Around(next(ends), next(ends))

    house.outbox.observe(Putting())
    house.invite("it", first_time(fails))
    house.live()


def test_an_interceptor_that_fails_fails_its_event_alone_and_after_it_nothing(house):
    before, after = {}, {}

    class Intercepting:
        def before(self, event):
            if event.attempt == 1 and event.event_type in before:
                raise before[event.event_type]

        def after(self, event, outcome, error):
            if event.event_type in after:
                raise after[event.event_type]

    house.outbox.intercept(Intercepting())
    for name, error in hostile(BaseException):
        before[f"before: {name}"] = after[f"after: {name}"] = error
        house.invite(f"before: {name}", lambda event: None, None)
        house.invite(f"after: {name}", lambda event: None, DONE)
    house.live()


def test_a_manager_around_a_handler_may_fail_at_either_end(house):
    makers = {}

    @contextmanager
    def plain(event):
        yield

    house.outbox.intercept(lambda event: makers.pop(event.event_type, lambda: plain(event))())
    for name, error in hostile(BaseException):
        makers[f"making: {name}"] = throws(error)
        makers[f"enters: {name}"] = lambda error=error: Around(throws(error), lambda: None)
        makers[f"leaves: {name}"] = lambda error=error: Around(lambda: None, throws(error))
        for when in ("making", "enters", "leaves"):
            house.invite(f"{when}: {name}", lambda event: None, None)
    for name, thing in hostile(Thing):
        makers[f"is: {name}"] = lambda thing=thing: thing
        house.invite(f"is: {name}", lambda event: None, None)
    house.live()


def test_a_dead_letter_hook_may_raise_anything(house):
    errors, seen = dict(hostile(BaseException)), []

    @house.outbox.on_dead_letter
    def bury(event):
        seen.append(event.event_type)
        raise errors[event.event_type]

    for name in errors:
        house.invite(name, lambda event: Dead("no"), DEAD)
    house.live(until=lambda: set(seen) == set(errors))


class Coded:
    """A codec that decodes like that."""

    def __init__(self, decode):
        self._decode = decode

    def encode(self, value):
        return b"x"

    def decode(self, data):
        return self._decode()


def test_codecs_may_raise_and_return_anything(open_house):
    returned, raised = dict(hostile(Thing)), dict(hostile(BaseException))
    codecs = {f"returns/{name}": Coded(lambda thing=thing: thing) for name, thing in returned.items()}
    codecs |= {f"raises/{name}": Coded(throws(error)) for name, error in raised.items()}
    house = open_house(codecs=codecs)
    for kind in codecs:
        house.invite(kind, lambda event: event.payload, None, max_attempts=1)
    house.hostile = lambda guest: Event(
        guest.name, "x", content_type=guest.name, aggregate_type="Guest", aggregate_id=guest.name
    )
    house.live()


ENCODED = {
    "an error": (throws(ValueError("S3cret")), PublishError),
    "an exit": (throws(SystemExit(3)), SystemExit),
    "no bytes": (lambda: "text", PublishError),
    "nothing": (lambda: None, PublishError),
    "odd text": (lambda: Text("x"), PublishError),
}


def test_a_codec_that_cannot_encode_refuses_before_anything_is_sent(open_house):
    odd = type("Odd", (), {"encode": lambda self, value: ENCODED[value][0]()})()
    house = open_house(codecs={"odd/one": odd})
    for number, (name, (_, refusal)) in enumerate(ENCODED.items(), 1):
        with named(name):
            with house.conn.transaction():
                with pytest.raises(refusal) as raised:
                    house.outbox.publish(house.conn, Event("Odd", name, aggregate_type="Odd", content_type="odd/one"))
                assert "S3cret" not in str(raised.value)
                house.outbox.publish(house.conn, Event("Ordinary", 1, aggregate_type="Guest", aggregate_id="after"))
            assert house.conn.execute("select count(*) from partbox.record").fetchone() == (number,)


def test_publish_hooks_may_raise_anything_once_it_is_written(house):
    errors = [error for error in EVERYTHING if issubclass(type(error), Exception)]
    called = []

    def told(events):
        called.append(events)
        raise errors[len(called) % len(errors)]

    house.outbox.after_publish(told)
    house.invite("it", first_time(fails))
    house.live()
    assert called


HOOKED = {
    "a text": ("text", PublishError),
    "a thing": (Thing(), PublishError),
    "what is no event": ([Thing()], (PublishError, AttributeError, TypeError)),
    "an odd list": (made(list, {"__iter__": DEEDS["raises"]}), ValueError),
}


@pytest.mark.parametrize(("result", "refusal"), HOOKED.values(), ids=HOOKED)
def test_a_hook_before_the_publish_that_gives_no_events_refuses_and_writes_nothing(house, result, refusal):
    house.outbox.before_publish(lambda events: result)
    with house.conn.transaction():
        with pytest.raises(refusal):
            house.outbox.publish(house.conn, Event("Ordinary", 1, aggregate_type="Guest"))
        assert house.conn.execute("select count(*) from partbox.record").fetchone() == (0,)


DSNS = {
    "an error": throws(ValueError("vault is away")),
    "an exit": throws(SystemExit(1)),
    "nothing": lambda: None,
    "no text": lambda: 7,
    "bytes": lambda: b"dbname=x",
    "an odd text": lambda: Text("dbname=x"),
    "no DSN": lambda: "postgresql://u:S3cr%etPW@h/db",
    "an empty text": lambda: "",
    "nobody there": lambda: "host=127.0.0.1 port=1",
    "a text with NUL": lambda: "dbname=x\0y",
    "no such database": lambda: "host=127.0.0.1 port=1 dbname=nobody",
}


def test_a_dsn_callable_may_fail_for_a_moment(open_house, dsn, caplog):
    left = []

    def source():
        return left.pop()() if left else dsn

    def all_called():
        return not left

    house = open_house(source=source, lease=3, heartbeat=0.3)
    with house.working() as worker:
        house.round()
        eventually(lambda: house.quiet(worker))
        for name, bad in DSNS.items():
            with named(name):
                left += [bad] * 3  # one for each of its connections
                house.conn.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = current_database() and pid <> pg_backend_pid()"
                )
                eventually(all_called)
                house.round()
                eventually(lambda: house.quiet(worker))
        house.look()
    house.judge()
    assert "S3cr" not in caplog.text


NAMES = {
    "quotes": 'a "quoted" \\ name',
    "lines": "a name\nof two lines\r\n# TYPE x counter",
    "directions": "\u202eeman",
    "a terminal's words": "\x1b[31mred\x07",
    "long": "x" * 2_000,
    "nothing to see": "\u200b\ufeff",
    "far away": "\U0001f4a9" * 100,
    "braces": '{handler="x"} 1 %s %(x)s {0}',
}


def test_names_and_ids_of_odd_text_are_delivered_and_counted(open_house, caplog):
    registry = CollectorRegistry()
    house = open_house(registry=registry)
    for name in NAMES.values():
        house.invite(name, first_time(fails))
    house.live()
    shown = generate_latest(registry).decode()
    assert all(line.startswith(("#", "partbox", "process", "python")) for line in shown.split("\n") if line)
    assert "\x1b" not in caplog.text
    assert "\u202e" not in caplog.text


NO_TEXTS = {"a lone surrogate": "\ud800", "NUL": "a\0b", "no plain text": Text("x")}
FIELDS = ("event_type", "aggregate_type", "aggregate_id", "tenant_id", "content_type")


def test_a_text_that_is_none_is_refused_or_arrives(house):
    for number, (field, name) in enumerate(product(FIELDS, NO_TEXTS)):
        fields = {"event_type": "Ordinary", "aggregate_type": "Guest", "payload": number} | {field: NO_TEXTS[name]}
        with named((field, name)):
            with suppress(PublishError, ValueError), house.conn.transaction():
                house.outbox.publish(house.conn, Event(**fields))
            assert house.conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    house.live()
