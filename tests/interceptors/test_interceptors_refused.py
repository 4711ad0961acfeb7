"""An interceptor that is none is refused at registration, and so is one that its handler cannot use."""

from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
from recording_interceptors import EVENT, Awaited, AwaitedLists, Broken, Lists, Plain, only_awaited, raising

from partbox.errors import RegistrationError
from partbox.interceptors import check_interceptor, must_be_awaited, wrap_call


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
        (None, "None is not an interceptor: give an object with before"),
        (42, "42 is not an interceptor"),
        (NoInterceptor(), "is not an interceptor: give an object"),
        (NoInterceptor, "the class NoInterceptor is not an interceptor"),
        (Plain, r"Plain is a class: give an instance, Plain\(\)"),
        (nullcontext(), "is a context manager, which could be used for one event only"),
        (contextmanager(generator)(EVENT), "is a context manager, which could be used for one event only"),
        (generator, r"generator \(.*test_interceptors_refused.py:\d+\) is a generator: decorate it"),
        (async_generator, "is a generator: decorate it"),
        (coroutine, "is not an interceptor: give an object"),
        (lambda: nullcontext(), "is not an interceptor: give an object"),
        (lambda event, more: nullcontext(), "is not an interceptor: give an object"),
        (TooFew(), "after of the interceptor .*TooFew does not take 3 positional arguments"),
        (Generating(), "before of the interceptor .*Generating is a generator"),
        (NotCallable(), "before of the interceptor .*NotCallable does not take 1 positional arg"),
    ],
)
def test_an_object_that_is_no_interceptor_is_refused_in_one_line_that_says_what_to_give(interceptor, problem):
    with pytest.raises(RegistrationError, match=problem) as info:
        check_interceptor(interceptor)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    "interceptor",
    [Plain([]), Awaited([]), Lists([]), AwaitedLists([]), only_awaited, contextmanager(generator), nullcontext,
     lambda event: nullcontext(), partial(nullcontext), contextmanager(partial(generator))],
)  # fmt: skip
def test_every_kind_of_interceptor_is_accepted(interceptor):
    check_interceptor(interceptor)


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
        wrap_call(raising(Broken()), [Plain([]), interceptor], is_async=False, is_batch=is_batch)
    assert "raising.<locals>.act (" in str(info.value)
    assert "or make the handler `async def`" in str(info.value)


@pytest.mark.parametrize("interceptor", [Plain([]), AwaitedLists([]), contextmanager(generator), nullcontext])
def test_a_plain_interceptor_need_not_be_awaited(interceptor):
    assert not must_be_awaited(interceptor)


def test_registering_an_interceptor_does_not_call_it():
    def manager(event: Any):
        raise AssertionError("called")

    check_interceptor(manager)
    must_be_awaited(manager)
