"""A worker holds none of its locks while it asks the application anything: that may wait, or ask back."""

from contextlib import contextmanager

import pytest

from partbox import Dead
from partbox.observe import Observer


class Application:
    """Everything that an application can give a worker, and what of it was asked while the worker held a lock."""

    def __init__(self):
        self.asked = set()
        self.within_a_lock = set()
        self.worker = None

    def note(self, name):
        self.asked.add(name)
        if self.worker is not None:
            context = self.worker._worker._context
            circuits = [each.circuit for each in context.routes.list_all()]
            held = context.engine.lock._is_owned() or any(each.lock.locked() for each in circuits)
            if held:
                self.within_a_lock.add(name)

    def answering(self, kind, *arguments, answers=()):
        """An instance of a subclass of `kind` that notes each question."""

        def noted(name):
            def answer(this, *more):
                self.note(f"{kind.__name__}.{name}")
                return getattr(kind, name)(this, *more)

            return answer

        names = ("__eq__", "__hash__", "__str__", "__repr__", *answers)
        members = {name: noted(name) for name in names}
        members["__class__"] = property(lambda this: (self.note(f"{kind.__name__}.__class__"), kind)[1])
        return type(f"Noted{kind.__name__}", (kind,), members)(*arguments)


@pytest.fixture
def application():
    return Application()


def register(desk, application):
    note, outbox = application.note, desk.outbox

    class Policy:
        def should_retry(self, error):
            note("should_retry")
            return True

        def next_delay(self, attempt):
            note("next_delay")
            return 0.01

    def limit_by(event):
        note("limit_by")
        return application.answering(str, event.aggregate_id)

    def on_error(event, error, attempt):
        note("on_error")

    hooks = [name for name in vars(Observer) if not name.startswith("_")]
    plain = {name: lambda self, *_, name=name: note(f"observer.{name}") for name in hooks}
    outbox.observe(type("Noting", (Observer,), plain)())

    class Noting:
        def before(self, event):
            note("before")

        def after(self, event, outcome, error):
            note("after")

    @contextmanager
    def around(event):
        note("entered")
        yield
        note("left")

    outbox.intercept(Noting())
    outbox.intercept(around)
    outbox.on_dead_letter(lambda event: note("dead letter"))

    options = {"limit_by": limit_by, "rate": "1000/s", "on_error": on_error, "retry": Policy(), "max_attempts": 2}

    @outbox.on("Fails", circuit_on=(OSError,), **options)
    def fails(event):
        raise application.answering(ConnectionError, "away")

    @outbox.on("Says", **options)
    def says(event):
        return application.answering(Dead, "no")

    @outbox.on("Odd", **options)
    def odd(event):
        return application.answering(set)

    outbox.on_batch("Listed", max_size=5, **options)(lambda events: application.answering(list, [None] * len(events)))

    async def awaited(event):
        raise application.answering(ValueError, "no")

    outbox.on("Awaited", **options)(awaited)


def test_no_callable_and_no_object_of_the_application_is_asked_while_a_lock_is_held(desk_with, application):
    desk = desk_with(on_unroutable=lambda event: application.note("on_unroutable"))
    register(desk, application)
    with desk.outbox.worker(concurrency=1) as application.worker:
        for event_type in ("Fails", "Says", "Odd", "Listed", "Awaited", "Nobody"):
            desk.publish("k", 1, 2, event_type=event_type)
        application.worker.wait_until_empty(30)
    application.worker = None
    expected = {"limit_by", "on_error", "should_retry", "next_delay", "before", "after", "entered", "left"}
    expected |= {"dead letter", "on_unroutable", "ConnectionError.__str__", "observer.settled"}
    assert expected <= application.asked
    assert application.within_a_lock == set()
