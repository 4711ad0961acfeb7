"""Handlers that do to their process what nobody should: the others are delivered, and the worker lives."""

import asyncio
import contextlib
import ctypes
import faulthandler
import gc
import locale
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
import tracemalloc
import warnings

import psycopg
import pytest
from house import DEAD, DONE, LATER, RETRIED

from partbox import Dead, Event, RetryAfter
from partbox.errors import DownstreamUnavailable, PartboxError, PayloadError

HELD = 1.5  # seconds that the interpreter is held: longer than a heartbeat takes


def raises(error):
    def deed(event):
        raise error

    return deed


def first(deed):
    """Does it at the first attempt only."""

    def handle(event):
        return deed(event) if event.attempt == 1 else None

    return handle


def first_async(deed):
    async def handle(event):
        if event.attempt == 1:
            return await deed(event)
        return None

    return handle


# Endings of one handler.

ERRORS = {
    "BaseException": BaseException("no"),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "SystemExit": SystemExit(1),
    "GeneratorExit": GeneratorExit(),
    "StopIteration": StopIteration(1),
    "StopAsyncIteration": StopAsyncIteration(),
    "MemoryError": MemoryError(),
    "RecursionError": RecursionError("deep"),
    "CancelledError": asyncio.CancelledError(),
    "TimeoutError": TimeoutError("not ours"),
    "a group of errors": BaseExceptionGroup("many", [KeyboardInterrupt(), ValueError()]),
    "psycopg's": psycopg.OperationalError("the connection is lost"),
    "our own": PartboxError("no"),
    "an AssertionError": AssertionError(),
    "a NUL": ValueError("a\0b"),
    "a lone surrogate": ValueError("\ud800"),
    "a long one": ValueError("x" * 1_000_000),
    "a terminal's": ValueError("\x1b[2J\n\r"),
    "one of percents": ValueError("%s %(x)d %"),
}


def test_any_error_is_the_events_own(house):
    for name, error in ERRORS.items():

        async def deed(event, error=error):
            raise error

        def deed_of_list(events, error=error):
            if events[0].attempt == 1:
                raise error

        house.invite(name, first(raises(error)))
        house.invite(f"{name}, awaited", first_async(deed))
        house.invite(f"{name}, of a list", deed_of_list, batch=True)
    house.live()


ENDINGS = {
    "unrecoverable": (raises(PayloadError("no")), DEAD),
    "dead": (lambda event: Dead("no"), DEAD),
    "later": (lambda event: RetryAfter(0.01), LATER),
    "a downstream that is away": (raises(DownstreamUnavailable("no")), LATER),
    "sys.exit": (lambda event: sys.exit(0), RETRIED),
    "quit": (lambda event: quit(), RETRIED),
    "a generator": (lambda event: (yield), RETRIED),
    "a coroutine nobody awaits": (lambda event: asyncio.sleep(0), RETRIED),
    "an own event loop": (lambda event: asyncio.run(asyncio.sleep(0)), DONE),
    "a handler of signals": (lambda event: signal.signal(signal.SIGTERM, signal.SIG_IGN), RETRIED),
    "a mask of signals": (lambda event: nothing(signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})), DONE),
    "its payload": (lambda event: event.payload.clear(), DONE),
    "its headers": (lambda event: event.headers.update(x="y"), DONE),
    "its id": (lambda event: setattr(event, "id", 0), RETRIED),
    "a deep recursion": (lambda event: _deep(), RETRIED),
    "much memory": (lambda event: bytearray(1 << 62), RETRIED),
    "a thread that never ends": (lambda event: _sleeping_thread(), DONE),
    "a long regular expression": (lambda event: re.match(r"(a+)+$", "a" * 19 + "b"), DONE),
    "a big number": (lambda event: 7**100_000 % 10 and None, DONE),
}


def nothing(_):
    """In the place of what something returns."""


def _deep():
    return _deep()


def _sleeping_thread():
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def test_handlers_that_misbehave_harm_their_own_event_at_most(house):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the coroutine that nobody awaits
        for name, (deed, ending) in ENDINGS.items():
            left = [deed]

            def once(event, left=left):
                return left.pop()(event) if left else None

            house.invite(name, deed if ending == DEAD else once, ending)
        house.live()
        gc.collect()


# What belongs to the whole process.


@pytest.fixture
def whole():
    """Puts back what a handler changes for the whole process."""
    before = os.getcwd(), dict(os.environ), os.umask(0o022), sys.getrecursionlimit(), sys.getswitchinterval()
    stdio, filters = (sys.stdin, sys.stdout, sys.stderr), warnings.filters[:]
    spoken = locale.setlocale(locale.LC_ALL)
    yield
    os.chdir(before[0])
    os.environ.clear()
    os.environ.update(before[1])
    os.umask(before[2])
    sys.setrecursionlimit(before[3])
    sys.setswitchinterval(before[4])
    sys.stdin, sys.stdout, sys.stderr = stdio
    warnings.filters[:] = filters
    socket.setdefaulttimeout(None)
    locale.setlocale(locale.LC_ALL, spoken)
    logging.disable(logging.NOTSET)
    threading.settrace(None)
    threading.setprofile(None)
    gc.enable()
    gc.unfreeze()
    tracemalloc.stop()


def _odd_folder(event):
    folder = os.path.realpath(f"/proc/self/cwd/gone-{os.getpid()}")
    os.mkdir(folder)
    os.chdir(folder)
    os.rmdir(folder)


def _trace(event):
    sys.settrace(lambda *_: None)
    threading.settrace(lambda *_: None)
    sys.setprofile(None)


CHANGES = {
    "a folder that is gone": _odd_folder,
    "no environment": lambda event: os.environ.clear(),
    "another database's environment": lambda event: os.environ.update(
        PGHOST="nowhere", PGDATABASE="no", PGOPTIONS="-c search_path=no", PGTZ="Asia/Tokyo", PARTBOX_DSN="no"
    ),
    "another locale": lambda event: locale.setlocale(locale.LC_ALL, "C") and None,
    "a mask of files": lambda event: os.umask(0o777) and None,
    "a time for sockets": lambda event: socket.setdefaulttimeout(0.0001),
    "a nicer process": lambda event: os.nice(1) and None,
    "a low limit of recursion": lambda event: sys.setrecursionlimit(300),
    "a high limit of recursion": lambda event: sys.setrecursionlimit(1_000_000),
    "slow switches": lambda event: sys.setswitchinterval(0.5),
    "no logging": lambda event: logging.disable(logging.CRITICAL),
    "logging shut down": lambda event: logging.shutdown(),
    "warnings as errors": lambda event: warnings.simplefilter("error"),
    "no collector": lambda event: gc.disable(),
    "a frozen collector": lambda event: gc.freeze(),
    "a handler of faults": lambda event: faulthandler.enable(),
    "a tracer": _trace,
    "traced memory": lambda event: tracemalloc.start(),
    "no output": lambda event: setattr(sys, "stdout", None) or setattr(sys, "stderr", None),
    "a handler of thread errors": lambda event: setattr(threading, "excepthook", threading.excepthook),
}


@pytest.mark.usefixtures("whole")
def test_what_a_handler_changes_in_its_process_stops_nobody(house, tmp_path, monkeypatch):
    """Each change stays for the next one, and the worker stops in the midst of them all."""
    monkeypatch.chdir(tmp_path)
    for name, change in CHANGES.items():
        house.invite(name, change, DONE)
    house.live_in_turn()


@pytest.mark.soak
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.usefixtures("whole")
def test_each_change_of_the_process_alone_stops_nobody(house, change, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    house.invite("it", change, DONE)
    house.live()


def test_a_handler_that_holds_the_interpreter_delays_and_harms_nobody(open_house):
    house = open_house(lease=6, heartbeat=0.3)
    hold = ctypes.PyDLL(None).usleep
    house.invite("it", lambda event: nothing(hold(int(HELD * 1_000_000))), DONE)
    house.live()


def test_handlers_that_publish_inside_are_heard(house):
    def publish(event):
        with psycopg.connect(house.dsn) as conn:
            house.outbox.publish(conn, Event("Echo", 1, aggregate_type="Guest", aggregate_id="echo"))

    echoes = []
    house.outbox.on("Echo")(lambda event: echoes.append(event.id))
    house.invite("it", publish, DONE)
    house.live()
    assert len(echoes) == 1


def test_a_handler_may_run_a_worker_of_its_own_and_stop_it(house):
    def nested(event):
        with house.outbox.worker():
            pass

    house.invite("it", nested, DONE)
    house.live()


# In the event loop.


async def _cancels_itself(event):
    asyncio.current_task().cancel()
    await asyncio.sleep(10)


async def _cancels_itself_at_the_end(event):
    asyncio.current_task().cancel()


async def _cancels_itself_and_goes_on(event):
    asyncio.current_task().cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(10)


async def _cancels_its_friends(event):
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def _cancels_everybody(event):
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(10)


async def _leaves_a_task(event):
    event.payload["task"] = asyncio.get_running_loop().create_task(asyncio.sleep(3600))


async def _leaves_a_task_that_exits(event):
    async def exits():
        raise SystemExit(1)

    event.payload["task"] = asyncio.get_running_loop().create_task(exits())
    await asyncio.sleep(0.05)


async def _calls_what_exits(event):
    asyncio.get_running_loop().call_soon(sys.exit, 1)
    await asyncio.sleep(0.05)


async def _stops_the_loop(event):
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.05)


async def _closes_the_loop(event):
    asyncio.get_running_loop().close()


async def _blocks_the_loop(event):
    time.sleep(0.5)


async def _never_yields_in_time(event):
    await asyncio.sleep(60)


async def _resists(event):
    for _ in range(3):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.2)


async def _yields_for_ever(event):
    while True:
        await asyncio.sleep(0)


async def _timeout_of_its_own(event):
    async with asyncio.timeout(0.01):
        await asyncio.sleep(10)


async def _group(event):
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(10))
        raise ValueError("no")


IN_THE_LOOP = {  # those that end the loop are the last
    "cancels itself": (_cancels_itself, RETRIED, {}),
    "cancels itself at the end": (_cancels_itself_at_the_end, None, {}),
    "cancels itself and goes on": (_cancels_itself_and_goes_on, None, {}),
    "cancels its friends": (_cancels_its_friends, DONE, {}),
    "leaves a task": (_leaves_a_task, DONE, {}),
    "blocks the loop": (_blocks_the_loop, DONE, {}),
    "hangs": (_never_yields_in_time, RETRIED, {"timeout": 0.3}),
    "resists its timeout": (_resists, None, {"timeout": 0.1}),
    "yields for ever": (_yields_for_ever, RETRIED, {"timeout": 0.3}),
    "a timeout of its own": (_timeout_of_its_own, RETRIED, {}),
    "a group of tasks": (_group, RETRIED, {}),
    "cancels everybody": (_cancels_everybody, RETRIED, {}),
    "leaves a task that exits": (_leaves_a_task_that_exits, None, {}),
    "calls what exits": (_calls_what_exits, None, {}),
    "stops the loop": (_stops_the_loop, None, {}),
    "closes the loop": (_closes_the_loop, RETRIED, {}),
}


FRIENDS = 4


def invite_to_the_loop(house, name):
    async def friendly(event):
        await asyncio.sleep(0.01)

    deed, ending, options = IN_THE_LOOP[name]
    house.invite(name, first_async(deed), ending, **options)
    for number in range(FRIENDS):
        house.invite(f"{name}: friend {number}", friendly, None)


def test_an_async_handler_harms_its_own_event_at_most(house):
    for name in IN_THE_LOOP:
        invite_to_the_loop(house, name)
    house.live_in_turn(1 + FRIENDS, timeout=10)


@pytest.mark.soak
@pytest.mark.parametrize("name", IN_THE_LOOP)
def test_each_async_handler_alone_harms_its_own_event_at_most(house, name):
    invite_to_the_loop(house, name)
    house.live(timeout=10)


# In a transaction.


def _commits(event, conn):
    conn.execute("commit")


def _rolls_back(event, conn):
    conn.execute("rollback")


def _closes(event, conn):
    conn.close()


def _breaks(event, conn):
    conn.execute("select 1 / 0")


def _swallows(event, conn):
    with contextlib.suppress(psycopg.Error):
        conn.execute("select 1 / 0")


def _sets(event, conn):
    conn.execute("set statement_timeout = 1")
    conn.execute("set search_path = nowhere")
    conn.execute("set datestyle = 'German'")


def _serializable(event, conn):
    conn.execute("set session characteristics as transaction isolation level serializable")


def _read_only(event, conn):
    conn.execute("set transaction read only")


def _savepoint(event, conn):
    conn.execute("savepoint mine")


def _autocommits(event, conn):
    conn.autocommit = True


def _factory(event, conn):
    conn.row_factory = psycopg.rows.dict_row


def _terminates(event, conn):
    conn.execute("select pg_terminate_backend(pg_backend_pid())")


def _listens(event, conn):
    conn.execute("listen x")


def _locks(event, conn):
    conn.execute("lock table partbox.partition in access exclusive mode")


def _own_role(event, conn):
    conn.execute("set role pg_monitor")


IN_A_TRANSACTION = {
    "commits": _commits,
    "rolls back": _rolls_back,
    "closes its connection": _closes,
    "fails in SQL": _breaks,
    "swallows an error of SQL": _swallows,
    "changes its session": _sets,
    "wants to be serializable": _serializable,
    "is read only": _read_only,
    "leaves a savepoint": _savepoint,
    "asks for autocommit": _autocommits,
    "changes the form of rows": _factory,
    "ends its backend": _terminates,
    "listens": _listens,
    "locks the partitions": _locks,
    "takes another role": _own_role,
}


def invite_to_transactions(house, name):
    def handle(event, conn):
        if event.attempt == 1:
            IN_A_TRANSACTION[name](event, conn)

    house.invite(name, handle, None, transactional=True, max_attempts=2)
    house.invite(f"{name}: a neighbour", lambda event, conn: None, None, transactional=True)


def test_a_transactional_handler_harms_its_own_event_at_most(house):
    for name in IN_A_TRANSACTION:
        invite_to_transactions(house, name)
    house.live_in_turn(2)


@pytest.mark.soak
@pytest.mark.parametrize("name", IN_A_TRANSACTION)
def test_each_transactional_handler_alone_harms_its_own_event_at_most(house, name):
    invite_to_transactions(house, name)
    house.live()
