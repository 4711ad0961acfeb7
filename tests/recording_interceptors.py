"""Interceptors for tests, which note what they are told."""

import asyncio
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import pytest

from partbox.interceptors import wrap_call

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
    wrapped = wrap_call(handler(act, awaited), interceptors, is_async=awaited, is_batch=is_batch)
    return asyncio.run(wrapped(*arguments)) if awaited else wrapped(*arguments)


def raising(error):
    def act(*_):
        raise error

    return act


@dataclass(frozen=True)
class Layer:
    manager: bool
    awaited: bool
    before_fails: bool
    after_fails: bool
    swallows: bool


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


@asynccontextmanager
async def only_awaited(event):
    yield
