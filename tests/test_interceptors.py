"""What runs around a handler, in which order, and what each part sees of the others."""

import asyncio
import inspect
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox.errors import RegistrationError
from partbox.interceptors import check, must_be_awaited, wrap
from partbox.rules.signature import name_of, place_of

BOTH = pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])
EVENT = "event"
EVENTS = ["a", "b", "c"]


class Broken(Exception):
    pass


class Witness:
    """Notes what it is told, and raises where it is told to."""

    def __init__(self, journal, name="witness", fails=()):
        self.journal, self.name, self.fails = journal, name, fails

    def note(self, what, *said):
        self.journal.append((self.name, what, *said))
        if what in self.fails:
            raise Broken(self.name, what)


class Plain(Witness):
    def before(self, event):
        self.note("before", event)

    def after(self, event, outcome, error):
        self.note("after", event, outcome, error)


class Awaited(Witness):
    async def before(self, event):
        await asyncio.sleep(0)
        self.note("before", event)

    async def after(self, event, outcome, error):
        await asyncio.sleep(0)
        self.note("after", event, outcome, error)


class Lists(Plain):
    def before_batch(self, events):
        self.note("before_batch", *events)

    def after_batch(self, events, outcomes, error):
        self.note("after_batch", events, outcomes, error)


class AwaitedLists(Plain):
    async def before_batch(self, events):
        self.note("before_batch", *events)

    async def after_batch(self, events, outcomes, error):
        self.note("after_batch", events, outcomes, error)


def handler(act, awaited):
    """A handler that does this, `async def` if it is to be awaited."""

    async def handle(*arguments):
        await asyncio.sleep(0)
        return act(*arguments)

    return handle if awaited else act


def run(act, interceptors, *arguments, awaited=False, is_batch=False):
    wrapped = wrap(handler(act, awaited), interceptors, is_async=awaited, is_batch=is_batch)
    return asyncio.run(wrapped(*arguments)) if awaited else wrapped(*arguments)


def raising(error):
    def act(*_):
        raise error

    return act


# What the call is.


@BOTH
def test_without_interceptors_the_call_stays_itself(awaited):
    call = handler(print, awaited)
    assert wrap(call, [], is_async=awaited, is_batch=False) is call


@BOTH
def test_an_intercepted_call_is_of_its_handlers_kind_and_keeps_its_name_and_place(awaited):
    call = handler(lambda event: None, awaited)
    wrapped = wrap(call, [Plain([]), lambda event: nullcontext()], is_async=awaited, is_batch=False)
    assert inspect.iscoroutinefunction(wrapped) is awaited
    assert name_of(wrapped) == name_of(call)
    assert place_of(wrapped) == place_of(call)


def test_a_callable_object_can_be_intercepted_and_its_state_is_not_copied():
    class Projection:
        def __init__(self):
            self.lock = "state"

        def __call__(self, event):
            return event

    wrapped = wrap(Projection(), [Plain([])], is_async=False, is_batch=False)
    assert wrapped(EVENT) == EVENT
    assert not hasattr(wrapped, "lock")


@BOTH
@pytest.mark.parametrize("interceptor", [Plain([]), lambda event: nullcontext()], ids=["object", "context manager"])
def test_further_arguments_are_passed_on_to_the_handler_alone(awaited, interceptor):
    assert run(lambda *arguments: arguments, [interceptor], EVENT, "conn", awaited=awaited) == (EVENT, "conn")


# Any stack of interceptors, against a model of it.


@dataclass(frozen=True)
class Layer:
    manager: bool
    awaited: bool
    before_fails: bool
    after_fails: bool
    swallows: bool


def expected(layers, result):
    """The journal, and what comes out: (outcome, error)."""
    journal = []

    def inside(depth):
        if depth == len(layers):
            journal.append("handled")
            return result
        layer, name = layers[depth], str(depth)
        journal.append((name, "before", EVENT))
        if layer.before_fails:
            return None, (name, "before")
        outcome, error = inside(depth + 1)
        journal.append((name, "after", EVENT, None if layer.manager else outcome, error))
        if not layer.manager:
            return outcome, error
        if layer.after_fails:
            return None, (name, "after")
        return (None, None) if error and layer.swallows else (outcome, error)

    return journal, inside(0)


def made(layer, journal, name):
    fails = [what for what, fail in (("before", layer.before_fails), ("after", layer.after_fails)) if fail]
    witness = (Awaited if layer.awaited else Plain)(journal, name, fails)
    if not layer.manager:
        return witness

    @contextmanager
    def manager(event):
        witness.note("before", event)
        error = None
        try:
            yield
        except BaseException as raised:
            error = raised
        witness.note("after", event, None, error)
        if error is not None and not layer.swallows:
            raise error

    @asynccontextmanager
    async def manager_async(event):
        with manager(event):
            yield

    return manager_async if layer.awaited else manager


@given(
    awaited=st.booleans(),
    layers=st.lists(st.builds(Layer, *[st.booleans()] * 5), max_size=4),
    result=st.sampled_from([("outcome", None), (None, ("handler", "raised"))]),
)
def test_before_runs_in_order_and_after_in_reverse_for_each_that_began(awaited, layers, result):
    layers = [Layer(e.manager, e.awaited and awaited, e.before_fails, e.after_fails, e.swallows) for e in layers]
    journal, raised = [], []

    def act(event):
        journal.append("handled")
        if result[1]:
            raised.append(Broken(*result[1]))
            raise raised[0]
        return result[0]

    interceptors = [made(layer, journal, str(depth)) for depth, layer in enumerate(layers)]
    try:
        outcome, error = run(act, interceptors, EVENT, awaited=awaited), None
    except Broken as caught:
        outcome, error = None, caught
    told, (expected_outcome, expected_error) = expected(layers, result)
    assert [_plainly(entry) for entry in journal] == told
    assert (outcome, error and error.args) == (expected_outcome, expected_error)
    if expected_error == result[1]:
        assert error is (raised[0] if raised else None)


def _plainly(entry):
    """Errors by their arguments."""
    if entry == "handled":
        return entry
    return tuple(part.args if isinstance(part, Broken) else part for part in entry)


# Events.


@BOTH
def test_an_object_may_have_one_method_only(awaited):
    class Before:
        def before(self, event):
            journal.append("before")

    class After:
        def after(self, event, outcome, error):
            journal.append("after")

    journal = []
    assert run(lambda event: 1, [Before(), After()], EVENT, awaited=awaited) == 1
    assert journal == ["before", "after"]


@BOTH
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
def test_after_sees_the_very_error_that_the_handler_raised(awaited, error):
    async def caught():
        """Inside of the loop: SystemExit and KeyboardInterrupt would end it."""
        with pytest.raises(type(error)) as info:
            await wrapped(EVENT)
        return info.value

    journal = []
    wrapped = wrap(handler(raising(error), awaited), [Plain(journal)], is_async=awaited, is_batch=False)
    if awaited:
        assert asyncio.run(caught()) is error
    else:
        with pytest.raises(type(error)) as info:
            wrapped(EVENT)
        assert info.value is error
    assert journal[-1] == ("witness", "after", EVENT, None, error)


def test_a_stop_iteration_comes_through_as_what_it_is():
    journal = []
    with pytest.raises(StopIteration):
        run(raising(StopIteration()), [Plain(journal), lambda event: nullcontext()], EVENT)
    assert isinstance(journal[-1][-1], StopIteration)


def test_a_cancelled_handler_has_its_after_and_stays_cancelled():
    journal = []

    async def hang(event):
        await asyncio.sleep(60)

    async def cancelled():
        wrapped = wrap(hang, [Awaited(journal), made(Layer(True, True, *[False] * 3), journal, "manager")],
                       is_async=True, is_batch=False)  # fmt: skip
        async with asyncio.timeout(0.01):
            await wrapped(EVENT)

    with pytest.raises(TimeoutError):
        asyncio.run(cancelled())
    assert [entry[:2] for entry in journal] == [
        ("witness", "before"), ("manager", "before"), ("manager", "after"), ("witness", "after")
    ]  # fmt: skip
    assert isinstance(journal[-1][-1], asyncio.CancelledError)


def test_an_after_that_is_cancelled_itself_does_not_hide_it():
    class Hanging:
        async def after(self, event, outcome, error):
            await asyncio.sleep(60)

    async def cancelled():
        async with asyncio.timeout(0.01):
            await wrap(handler(lambda event: None, True), [Hanging()], is_async=True, is_batch=False)(EVENT)

    with pytest.raises(TimeoutError):
        asyncio.run(cancelled())


@BOTH
@pytest.mark.parametrize("raised", [Broken("after"), SystemExit(1)], ids=["an exception", "SystemExit"])
@pytest.mark.parametrize("act", [lambda event: "outcome", raising(ValueError("handler"))], ids=["done", "failed"])
def test_what_after_raises_is_logged_and_changes_nothing(awaited, raised, act, caplog):
    class Careless:
        def after(self, event, outcome, error):
            raise raised

    try:
        result = run(act, [Careless()], EVENT, awaited=awaited)
    except ValueError as error:
        result = str(error)
    assert result in ("outcome", "handler")
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("partbox.worker", "ERROR")
    assert record.exc_info[1] is raised
    assert "Careless" in record.getMessage()
    assert record.getMessage().endswith("changes nothing for event")


@BOTH
def test_an_error_that_a_context_manager_swallows_leaves_the_event_done(awaited):
    @contextmanager
    def forgiving(event):
        try:
            yield
        except ValueError:
            journal.append("swallowed")

    journal = []
    assert run(raising(ValueError()), [Plain(journal, "outer"), forgiving], EVENT, awaited=awaited) is None
    assert journal == [("outer", "before", EVENT), "swallowed", ("outer", "after", EVENT, None, None)]


def test_a_context_manager_that_can_do_both_is_entered_as_its_handler_is():
    class Both:
        def __init__(self, event): ...

        def __enter__(self):
            journal.append("entered")

        def __exit__(self, *_): ...

        async def __aenter__(self):
            journal.append("awaited")

        async def __aexit__(self, *_): ...

    journal = []
    check(Both)
    assert not must_be_awaited(Both)
    run(lambda event: None, [Both], EVENT)
    run(lambda event: None, [Both], EVENT, awaited=True)
    assert journal == ["entered", "awaited"]


@asynccontextmanager
async def only_awaited(event):
    yield


@BOTH
@pytest.mark.parametrize(
    ("interceptor", "problem"),
    [
        (lambda event: None, "returned NoneType, no context manager"),
        (lambda event: only_awaited(event), "an async one, which a plain handler cannot use"),
    ],
    ids=["nothing", "async"],
)
def test_what_turns_out_to_make_no_fitting_context_manager_is_the_handlers_error(awaited, interceptor, problem):
    if awaited and "async" in problem:
        assert run(lambda event: 1, [interceptor], EVENT, awaited=True) == 1
        return
    with pytest.raises(TypeError, match=problem):
        run(lambda event: 1, [interceptor], EVENT, awaited=awaited)


# Batches.


@pytest.mark.parametrize(("kind", "awaited"), [(Lists, False), (Lists, True), (AwaitedLists, True)])
@pytest.mark.parametrize(
    ("returned", "outcomes"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ((1, 2, 3), [1, 2, 3]),
        (None, [None] * 3),
        ([1, 2], [None] * 3),
        (42, [42] * 3),
        ("abc", ["abc"] * 3),
    ],
)
def test_batch_methods_get_the_list_and_an_outcome_per_event(kind, awaited, returned, outcomes):
    journal = []
    assert run(lambda events: returned, [kind(journal)], EVENTS, awaited=awaited, is_batch=True) is returned
    assert journal == [("witness", "before_batch", *EVENTS), ("witness", "after_batch", EVENTS, outcomes, None)]


@BOTH
def test_batch_methods_fall_back_on_those_of_events(awaited):
    journal = []
    run(lambda events: [1, 2, 3], [Plain(journal)], EVENTS, awaited=awaited, is_batch=True)
    assert journal == [("witness", "before", event) for event in EVENTS] + [
        ("witness", "after", event, outcome, None) for event, outcome in (("c", 3), ("b", 2), ("a", 1))
    ]


@BOTH
def test_an_exception_among_the_outcomes_is_the_error_of_its_event(awaited):
    journal, error = [], ValueError("b")
    run(lambda events: [1, error, 3], [Plain(journal)], EVENTS, awaited=awaited, is_batch=True)
    assert [entry[2:] for entry in journal[3:]] == [("c", 3, None), ("b", None, error), ("a", 1, None)]


@BOTH
def test_a_batch_method_may_stand_beside_one_of_events(awaited):
    class Mixed:
        def before_batch(self, events):
            journal.append(("before", *events))

        def after(self, event, outcome, error):
            journal.append(("after", event))

    journal = []
    run(lambda events: None, [Mixed()], EVENTS, awaited=awaited, is_batch=True)
    assert journal == [("before", *EVENTS), ("after", "c"), ("after", "b"), ("after", "a")]


@BOTH
def test_a_batch_whose_handler_raised_tells_so_for_each_event(awaited):
    journal, error = [], ValueError("no")
    with pytest.raises(ValueError, match="no"):
        run(raising(error), [Lists(journal), Plain(journal)], EVENTS, awaited=awaited, is_batch=True)
    assert journal[4:] == [
        *(("witness", "after", event, None, error) for event in reversed(EVENTS)),
        ("witness", "after_batch", EVENTS, [None] * 3, error),
    ]


@BOTH
def test_a_before_that_fails_within_a_batch_ends_it_and_only_what_had_begun_has_an_after(awaited):
    class Choosy(Plain):
        def before(self, event):
            self.note("before", event)
            if event == "c":
                raise Broken("c")

    journal = []
    with pytest.raises(Broken):
        run(lambda events: journal.append("handled"), [Choosy(journal), Plain(journal, "inner")], EVENTS,
            awaited=awaited, is_batch=True)  # fmt: skip
    assert [entry[:3] for entry in journal] == [
        *(("witness", "before", event) for event in EVENTS), ("witness", "after", "b"), ("witness", "after", "a")
    ]  # fmt: skip


@BOTH
def test_a_failed_before_batch_has_no_after(awaited):
    journal = []
    with pytest.raises(Broken):
        run(lambda events: None, [Lists(journal, fails=["before_batch"])], EVENTS, awaited=awaited, is_batch=True)
    assert journal == [("witness", "before_batch", *EVENTS)]


@BOTH
def test_what_batch_methods_do_to_their_lists_changes_no_outcome_and_no_batch(awaited):
    class Careless:
        def before_batch(self, events):
            events.clear()

        def after_batch(self, events, outcomes, error):
            events.clear()
            outcomes.clear()

    handled, outcomes = [], [1, 2, 3]
    run(lambda events: handled.extend(events) or outcomes, [Careless()], EVENTS, awaited=awaited, is_batch=True)
    assert handled == EVENTS == ["a", "b", "c"]
    assert outcomes == [1, 2, 3]


@BOTH
def test_an_after_batch_that_fails_is_logged_with_its_first_event(awaited, caplog):
    interceptor = Lists([], fails=["after_batch"])
    run(lambda events: None, [interceptor], EVENTS, awaited=awaited, is_batch=True)
    (record,) = caplog.records
    assert "3 events from a" in record.getMessage()


@BOTH
def test_an_after_that_fails_for_one_event_of_a_batch_is_called_for_the_others(awaited, caplog):
    journal = []
    run(lambda events: None, [Plain(journal, fails=["after"])], EVENTS, awaited=awaited, is_batch=True)
    assert len(caplog.records) == 3
    assert [entry[2] for entry in journal[3:]] == ["c", "b", "a"]


@BOTH
def test_a_context_manager_is_entered_for_each_event_of_a_batch_and_left_in_reverse(awaited):
    layer = Layer(True, awaited, *[False] * 3)
    journal = []
    interceptors = [made(layer, journal, "manager")]
    outcomes = run(lambda events: [*events], interceptors, EVENTS, awaited=awaited, is_batch=True)
    assert outcomes == EVENTS
    assert [entry[1:3] for entry in journal] == [
        ("before", "a"), ("before", "b"), ("before", "c"), ("after", "c"), ("after", "b"), ("after", "a")
    ]  # fmt: skip


def test_batch_methods_mean_nothing_to_a_handler_of_events():
    class OnlyLists:
        async def before_batch(self, events): ...

    check(OnlyLists())
    assert run(lambda event: 1, [OnlyLists()], EVENT) == 1


# What is refused.


def generator(event):
    yield


async def async_generator(event):
    yield


async def coroutine(event): ...


class NoInterceptor:
    def handle(self, event): ...


class TooFew:
    def after(self, event): ...


class Generating:
    def before(self, event):
        yield


class NotCallable:
    before = 42


@pytest.mark.parametrize(
    ("interceptor", "problem"),
    [
        (None, "None is no interceptor: give an object with before"),
        (42, "42 is no interceptor"),
        (NoInterceptor(), "is no interceptor: give an object"),
        (NoInterceptor, "the class NoInterceptor makes no interceptor"),
        (Plain, r"Plain is a class: intercept by an instance, Plain\(\)"),
        (nullcontext(), "is a context manager, and would serve one event"),
        (contextmanager(generator)(EVENT), "is a context manager, and would serve one event"),
        (generator, r"generator \(.*test_interceptors.py:\d+\) is a generator: decorate it"),
        (async_generator, "is a generator: decorate it"),
        (coroutine, "is no interceptor: give an object"),
        (lambda: nullcontext(), "is no interceptor: give an object"),
        (lambda event, more: nullcontext(), "is no interceptor: give an object"),
        (TooFew(), "after of the interceptor .*TooFew does not take 3 positional arguments"),
        (Generating(), "before of the interceptor .*Generating is a generator"),
        (NotCallable(), "before of the interceptor .*NotCallable does not take 1 positional arg"),
    ],
)
def test_what_is_no_interceptor_is_refused_in_one_line_that_says_what_to_give(interceptor, problem):
    with pytest.raises(RegistrationError, match=problem) as info:
        check(interceptor)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    "interceptor",
    [Plain([]), Awaited([]), Lists([]), AwaitedLists([]), only_awaited, contextmanager(generator), nullcontext,
     lambda event: nullcontext(), partial(nullcontext), contextmanager(partial(generator))],
)  # fmt: skip
def test_every_kind_of_interceptor_is_accepted(interceptor):
    check(interceptor)


@pytest.mark.parametrize(
    ("interceptor", "is_batch", "part"),
    [
        (Awaited([]), False, "before of the interceptor .*Awaited is async"),
        (Awaited([]), True, "before of the interceptor .*Awaited is async"),
        (AwaitedLists([]), True, "before_batch of the interceptor .*AwaitedLists is async"),
        (only_awaited, False, "^the interceptor .*only_awaited is async"),
    ],
)
def test_an_async_interceptor_around_a_plain_handler_is_refused_and_both_are_named(interceptor, is_batch, part):
    assert must_be_awaited(interceptor, is_batch=is_batch)
    with pytest.raises(RegistrationError, match=part) as info:
        wrap(raising(Broken()), [Plain([]), interceptor], is_async=False, is_batch=is_batch)
    assert "raising.<locals>.act (" in str(info.value)
    assert "or the handler `async def`" in str(info.value)


@pytest.mark.parametrize("interceptor", [Plain([]), AwaitedLists([]), contextmanager(generator), nullcontext])
def test_a_plain_interceptor_need_not_be_awaited(interceptor):
    assert not must_be_awaited(interceptor)


def test_registering_checks_nothing_by_calling():
    def manager(event: Any):
        raise AssertionError("called")

    check(manager)
    must_be_awaited(manager)
