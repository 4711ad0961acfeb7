"""The observer protocol: who is called, and what an observer can and cannot do to the others."""

import logging
from contextlib import contextmanager, nullcontext, suppress
from inspect import signature

import pytest

from partbox import Event, Outbox
from partbox.errors import RegistrationError
from partbox.observe import Observer, Observers
from partbox.observe.metering import Metering
from partbox.observe.metrics.meter import Layout, Meter
from partbox.observe.metrics.registry import add_recorders
from partbox.observe.sentry import Sentry

HOOKS = [name for name in vars(Observer) if not name.startswith("_")]


class Ears(Observer):
    def __init__(self):
        self.heard = []

    def lost(self, partition):
        self.heard.append(("lost", partition))

    @contextmanager
    def handling(self, events, handler):
        self.heard.append(("begin", handler))
        try:
            yield
        except ValueError as error:
            self.heard.append(("failed", str(error)))
            raise
        self.heard.append(("end", handler))


class Broken(Observer):
    def lost(self, partition):
        raise RuntimeError("ears full of wax")

    def handling(self, events, handler):
        raise RuntimeError("ears full of wax")


class Swallows(Observer):
    @contextmanager
    def handling(self, events, handler):
        with suppress(BaseException):
            yield


def test_only_hooks_that_an_observer_overrides_are_called():
    observers = Observers([Ears(), Observer()])
    assert observers.has_hook("lost")
    assert observers.has_hook("handling")
    assert not observers.has_hook("delivered", "read")
    observers.delivered(object())  # and nobody minds


def test_metrics_and_reports_use_no_hook_that_slows_down_events_that_succeed():
    meter = Meter(Layout(["confirm"]))
    everyone = add_recorders([Metering(), Sentry()], meter, "partbox", "default")
    assert len(everyone) == 4
    assert not Observers(everyone).has_hook("handling", "settled")
    assert not Observers([Sentry()]).has_hook("delivered", "read", "saved", "loaded")
    assert add_recorders([], None, "partbox", "default") == []


def test_every_hook_of_the_protocol_has_a_method_of_its_own():
    assert len(HOOKS) > 15
    assert [name for name in HOOKS if name not in vars(Observers)] == []
    assert all(callable(getattr(Observers(), name)) for name in HOOKS)


@pytest.mark.parametrize("name", HOOKS)
def test_each_hook_passes_its_arguments_only_to_the_observers_that_override_it(name):
    heard, arguments = [], [object() for _ in signature(getattr(Observer, name)).parameters][1:]

    def hear(self, *given):
        heard.append(given)
        return nullcontext()

    ears = type("Ears", (Observer,), {name: hear})
    with getattr(Observers([Observer(), ears(), ears()]), name)(*arguments) or nullcontext():
        assert heard == [tuple(arguments)] * 2


def test_a_hook_that_is_mistyped_does_not_exist():
    with pytest.raises(AttributeError):
        Observers().deliverd(object())


def test_a_hook_that_raises_is_logged_and_the_others_are_called(caplog):
    ears = Ears()
    Observers([Broken(), ears]).lost(7)
    assert ears.heard == [("lost", 7)]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "ears full of wax" in caplog.text


def test_around_a_handler_all_are_entered_and_left(caplog):
    ears = Ears()
    with Observers([Broken(), ears]).handling((), "h"):
        ears.heard.append("the handler")
    assert ears.heard == [("begin", "h"), "the handler", ("end", "h")]
    assert "ears full of wax" in caplog.text


def test_an_exception_of_the_handler_passes_through_even_an_observer_that_swallows_it():
    ears = Ears()
    with pytest.raises(ValueError, match="broken"), Observers([ears, Swallows()]).handling((), "h"):
        raise ValueError("broken")
    assert ears.heard == [("begin", "h"), ("failed", "broken")]


def test_an_object_that_is_no_observer_is_refused(dsn):
    with pytest.raises(RegistrationError, match=r"a subclass of partbox\.observe\.Observer"):
        Outbox(dsn).observe(lambda: None)


class Shop(Observer):
    """Adds a header to what is published, and hears of it."""

    def __init__(self):
        self.heard = []

    @contextmanager
    def publishing(self, events):
        self.heard.append(("writing", len(events)))
        yield {"trace": "abc", "mine": "theirs"}
        self.heard.append("written")

    def published(self, events):
        self.heard.append(("published", [event.event_type for event in events]))


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_a_publisher_is_observed_and_its_events_get_headers_but_keep_their_own(dsn, conn, many):
    outbox, shop = Outbox(dsn), Shop()
    outbox.observe(shop)
    events = [Event("A", 1, headers={"mine": "mine"}), Event("B", 2)] if many else [Event("A", 1)]
    with conn.transaction():
        if many:
            outbox.publish_many(conn, events)
        else:
            outbox.publish(conn, events[0])
    rows = conn.execute("select event_type, headers->>'trace', headers->>'mine' from partbox.record order by id")
    assert rows.fetchall() == ([("A", "abc", "mine"), ("B", "abc", "theirs")] if many else [("A", "abc", "theirs")])
    assert shop.heard == [("writing", len(events)), "written", ("published", [each.event_type for each in events])]


@pytest.mark.parametrize("yielded", ["abc", {"x": 1}, {"partbox-x": "y"}, 7], ids=str)
def test_invalid_headers_of_an_observer_are_left_out_and_the_event_is_published(dsn, conn, caplog, yielded):
    class Wrong(Observer):
        @contextmanager
        def publishing(self, events):
            yield yielded

    outbox = Outbox(dsn)
    outbox.observe(Wrong())
    with conn.transaction():
        outbox.publish(conn, "A", 1)
    assert conn.execute("select headers from partbox.record").fetchall() == [(None,)]
    assert "an observer's publishing failed" in caplog.text


def test_a_publish_that_writes_nothing_is_not_observed(dsn, conn):
    outbox, shop = Outbox(dsn), Shop()
    outbox.observe(shop)
    with conn.transaction():
        assert outbox.publish_many(conn, []) == []
    assert shop.heard == []
