"""Around a handler of events: what runs, in which order, and what each part sees of the others."""

import asyncio
import inspect
from contextlib import contextmanager, nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recording_interceptors import (
    BOTH,
    EVENT,
    Awaited,
    Broken,
    Layer,
    Plain,
    handler,
    made,
    only_awaited,
    raising,
    run,
)

from partbox.callables import name_of, place_of
from partbox.interceptors import check_interceptor, must_be_awaited, wrap_call

# What the call is.


@BOTH
def test_without_interceptors_the_handler_is_called_without_a_wrapper(awaited):
    call = handler(print, awaited)
    assert wrap_call(call, [], is_async=awaited, is_batch=False) is call


@BOTH
def test_an_intercepted_handler_stays_async_or_plain_and_keeps_its_name_and_location(awaited):
    call = handler(lambda event: None, awaited)
    wrapped = wrap_call(call, [Plain([]), lambda event: nullcontext()], is_async=awaited, is_batch=False)
    assert inspect.iscoroutinefunction(wrapped) is awaited
    assert name_of(wrapped) == name_of(call)
    assert place_of(wrapped) == place_of(call)


def test_a_callable_object_can_be_intercepted_and_its_state_is_not_copied():
    class Projection:
        def __init__(self):
            self.lock = "state"

        def __call__(self, event):
            return event

    wrapped = wrap_call(Projection(), [Plain([])], is_async=False, is_batch=False)
    assert wrapped(EVENT) == EVENT
    assert not hasattr(wrapped, "lock")


@BOTH
@pytest.mark.parametrize("interceptor", [Plain([]), lambda event: nullcontext()], ids=["object", "context manager"])
def test_further_arguments_are_passed_on_to_the_handler_alone(awaited, interceptor):
    assert run(lambda *arguments: arguments, [interceptor], EVENT, "conn", awaited=awaited) == (EVENT, "conn")


# Any stack of interceptors, against a model of it.


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


@given(
    awaited=st.booleans(),
    layers=st.lists(st.builds(Layer, *[st.booleans()] * 5), max_size=4),
    result=st.sampled_from([("outcome", None), (None, ("handler", "raised"))]),
)
def test_before_runs_in_order_and_after_in_reverse_for_each_interceptor_that_began(awaited, layers, result):
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
def test_an_interceptor_may_have_only_one_of_its_methods(awaited):
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
    wrapped = wrap_call(handler(raising(error), awaited), [Plain(journal)], is_async=awaited, is_batch=False)
    if awaited:
        assert asyncio.run(caught()) is error
    else:
        with pytest.raises(type(error)) as info:
            wrapped(EVENT)
        assert info.value is error
    assert journal[-1] == ("witness", "after", EVENT, None, error)


def test_a_stop_iteration_of_a_handler_is_passed_on_unchanged():
    journal = []
    with pytest.raises(StopIteration):
        run(raising(StopIteration()), [Plain(journal), lambda event: nullcontext()], EVENT)
    assert isinstance(journal[-1][-1], StopIteration)


def test_after_is_called_for_a_cancelled_handler_which_stays_cancelled():
    journal = []

    async def hang(event):
        await asyncio.sleep(60)

    async def cancelled():
        wrapped = wrap_call(hang, [Awaited(journal), made(Layer(True, True, *[False] * 3), journal, "manager")],
                       is_async=True, is_batch=False)  # fmt: skip
        async with asyncio.timeout(0.01):
            await wrapped(EVENT)

    with pytest.raises(TimeoutError):
        asyncio.run(cancelled())
    assert [entry[:2] for entry in journal] == [
        ("witness", "before"), ("manager", "before"), ("manager", "after"), ("witness", "after")
    ]  # fmt: skip
    assert isinstance(journal[-1][-1], asyncio.CancelledError)


def test_a_cancellation_within_after_is_not_swallowed():
    class Hanging:
        async def after(self, event, outcome, error):
            await asyncio.sleep(60)

    async def cancelled():
        async with asyncio.timeout(0.01):
            await wrap_call(handler(lambda event: None, True), [Hanging()], is_async=True, is_batch=False)(EVENT)

    with pytest.raises(TimeoutError):
        asyncio.run(cancelled())


@BOTH
@pytest.mark.parametrize("raised", [Broken("after"), SystemExit(1)], ids=["an exception", "SystemExit"])
@pytest.mark.parametrize("act", [lambda event: "outcome", raising(ValueError("handler"))], ids=["done", "failed"])
def test_an_error_raised_by_after_is_logged_and_changes_nothing(awaited, raised, act, caplog):
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
    assert record.getMessage().endswith("does not change the outcome of event")


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


def test_a_manager_that_is_both_plain_and_async_is_entered_in_the_way_of_its_handler():
    class Both:
        def __init__(self, event): ...

        def __enter__(self):
            journal.append("entered")

        def __exit__(self, *_): ...

        async def __aenter__(self):
            journal.append("awaited")

        async def __aexit__(self, *_): ...

    journal = []
    check_interceptor(Both)
    assert not must_be_awaited(Both)
    run(lambda event: None, [Both], EVENT)
    run(lambda event: None, [Both], EVENT, awaited=True)
    assert journal == ["entered", "awaited"]


@BOTH
@pytest.mark.parametrize(
    ("interceptor", "problem"),
    [
        (lambda event: None, "returned NoneType, no context manager"),
        (lambda event: only_awaited(event), "an async context manager, which a sync handler cannot use"),
    ],
    ids=["nothing", "async"],
)
def test_an_interceptor_that_returns_no_fitting_context_manager_is_an_error_of_the_event(awaited, interceptor, problem):
    if awaited and "async" in problem:
        assert run(lambda event: 1, [interceptor], EVENT, awaited=True) == 1
        return
    with pytest.raises(TypeError, match=problem):
        run(lambda event: 1, [interceptor], EVENT, awaited=awaited)
