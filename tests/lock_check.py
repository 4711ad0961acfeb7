"""Makes the lock of the engine checked: whoever touches what it guards without holding it fails the test.

That only the engine touches it is import-linter's to say, and that its verbs take the lock `test_lock_discipline.py`'s.
Neither shows whether a step that says "Lock held." is ever taken without: so the partitions of an engine, and the
fields of each, ask who touches them. A field of `Partition` that is not named here is guarded; so is a new one. What
may be read without the lock is named in `READ_FREELY`, with the reason why that is right.
"""

import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from partbox.protocol.rows import OwnedPartition
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.state import EngineState

READ_FREELY = {
    "phase",  # what is done in an earlier one is found so under the lock
    "is_stopping",  # a runner looks before each event; what it starts a moment too late is waited for
    "incarnation",  # the same; what it starts of an earlier incarnation is remembered when it is done
    "resumption",  # the same: mostly it remembers nothing
    "predecessor",  # the poller's own to change
    "running_count",  # that of a predecessor only falls
}
CONSTANT = {"number", "epoch", "window"}
OF_THE_POLLER = {"cursor"}

violations: list[str] = []


class HeldLock(type(threading.RLock())):  # type: ignore[misc]
    """A lock that knows who holds it, and is none that may be taken twice.

    As long as one thread alone has taken it nothing is shared: tests that move parts of a worker by hand need none,
    unless they set `strict`.
    """

    def __init__(self) -> None:
        self.strict = False
        self.users: set[int] = set()

    def __enter__(self) -> bool:
        if self._is_owned():
            violated("the lock is taken by a thread that holds it: in production it would wait for ever")
        taken = bool(self.acquire())
        self.users.add(threading.get_ident())
        return taken

    def check(self, what: str) -> None:
        if not self._is_owned() and (self.strict or len(self.users) > 1):
            violated(f"{what} is touched without the lock")


def violated(what: str) -> None:
    stack = [frame for frame in traceback.extract_stack() if not frame.filename.endswith("lock_check.py")]
    frames = [frame for frame in stack if "/partbox/" in frame.filename]
    if stack[-1] not in frames:  # a test that looks, or prepares
        return
    where = " <- ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in reversed(frames[-3:]))
    violations.append(f"{what} by {threading.current_thread().name}, in {where or 'a test'}")
    raise AssertionError(violations[-1])


def _checked(kind: type, name: str) -> Callable[..., Any]:
    method = getattr(kind, name)

    def checked(self: Any, *arguments: Any, **more: Any) -> Any:
        self.lock.check(self.what)
        return method(self, *arguments, **more)

    return checked


READING = ("__iter__", "__contains__", "copy")
DICTS = ("__getitem__", "get", "keys", "values", "items", "__setitem__", "__delitem__", "pop", "clear", "setdefault")
SETS = ("add", "discard", "remove", "update", "clear", "pop", "difference_update")


def _guarded(kind: type, *names: str) -> type:
    return type(f"Guarded{kind.__name__}", (kind,), {"lock": None, "what": "", **{n: _checked(kind, n) for n in names}})


GuardedDict = _guarded(dict, *READING, *DICTS)
GuardedSet = _guarded(set, *READING, *SETS)
ChangedSet = _guarded(set, *SETS)  # for those that may be read without the lock


def _wrapped(kind: type, value: Any, lock: HeldLock, what: str) -> Any:
    guarded = kind(value)
    guarded.lock, guarded.what = lock, what
    return guarded


class _Written:
    """A field of a partition that the engine know, which is written with the lock held only."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.what = f"Partition.{name}"

    def __set__(self, owner: Any, value: Any) -> None:
        fields = owner.__dict__
        fields["_lock"].check(self.what)
        fields[self.name] = value


class _Guarded(_Written):
    """One that is read with the lock held only, too."""

    def __get__(self, owner: Any, kind: type) -> Any:
        if owner is None:
            return self
        fields = owner.__dict__
        fields["_lock"].check(self.what)
        try:
            return fields[self.name]
        except KeyError:
            raise AttributeError(self.name) from None


class _Partitions(GuardedDict):  # type: ignore[misc, valid-type]
    """The partitions that the engine know. With this the fields of one are guarded, not while it is made."""

    def __setitem__(self, number: int, partition: Partition) -> None:
        super().__setitem__(number, partition)
        fields = partition.__dict__
        fields["_lock"] = self.lock
        partition.__class__ = KnownPartition
        resumption = fields["resumption"]
        resumption.remembered = _wrapped(ChangedSet, resumption.remembered, self.lock, "Resumption.remembered")


def _fields() -> dict[str, _Written]:
    sample = Partition(OwnedPartition(0, 1, "1:1:", 0, 0, 0, None), 0.0, window=1, dead_letters=False)
    named = {name for name in vars(sample) if not name.startswith("_")}
    guarded = named - CONSTANT - OF_THE_POLLER
    return {name: _Written(name) if name in READ_FREELY else _Guarded(name) for name in guarded}


KnownPartition = type("KnownPartition", (Partition,), _fields())


def _install(patch: pytest.MonkeyPatch) -> None:
    init = EngineState.__init__

    def made(self: Any, *arguments: Any, **more: Any) -> None:
        init(self, *arguments, **more)
        self.lock = HeldLock()
        self.partitions = _wrapped(_Partitions, {}, self.lock, "Engine.partitions")
        self.dirty_partitions = _wrapped(GuardedSet, (), self.lock, "Engine.dirty_partitions")

    patch.setattr(EngineState, "__init__", made)


@pytest.fixture(scope="session", autouse=True)
def _checked_lock() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        _install(patch)
        yield


@pytest.fixture(autouse=True)
def _nothing_without_the_lock() -> Iterator[None]:
    """Fails a test in whose process something that the lock guards was touched without it."""
    violations.clear()
    yield
    assert not violations
