"""Observers, interceptors, hooks, codecs and DSN callables that fail or answer nonsense: no worker ends of it."""

from contextlib import contextmanager

import pytest
from deeds import DEEDS, Text, Thing, fails, first_time, hostile, made, throws
from house import DEAD, DONE
from variants import named
from waiting import eventually

from partbox import Dead, Event
from partbox.errors import PublishError
from partbox.observe import Observer
from partbox.worker.engine import dead_letters


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


def test_a_context_that_an_observer_puts_around_a_handler_may_fail_at_either_end(house):
    ends = iter([lambda: None, *(throws(error) for error in EVERYTHING)] * 100)

    class Putting(Observer):
        def handling(self, events, handler):
            return Around(next(ends), next(ends))

    house.outbox.observe(Putting())
    house.invite("it", first_time(fails))
    house.live()


def test_an_interceptor_that_fails_before_the_handler_fails_its_event_only_and_after_it_nothing(house):
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


def test_a_context_manager_around_a_handler_may_fail_at_either_end(house):
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


def test_a_dead_letter_hook_may_raise_anything(house, monkeypatch):
    for pause in ("LONGEST_PAUSE", "LONGEST_OF_ERRORS"):  # each failure pauses the next call, twice as long as the last
        monkeypatch.setattr(dead_letters, pause, 0.01)
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


def test_publish_hooks_may_raise_anything_after_the_events_are_written(house):
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
def test_a_before_publish_hook_that_returns_no_events_is_an_error_and_nothing_is_written(house, result, refusal):
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
        house.settle(worker)
        for name, bad in DSNS.items():
            with named(name):
                left += [bad] * 3  # one for each of its connections
                house.conn.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = current_database() and pid <> pg_backend_pid()"
                )
                eventually(all_called)
                house.round()
                house.settle(worker)
        house.look()
    house.judge()
    assert "S3cr" not in caplog.text
