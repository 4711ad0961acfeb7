"""Handlers that do to their process what nobody should: the others are delivered, and the worker lives."""

import asyncio
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
import tempfile
import threading
import tracemalloc
import warnings

import psycopg
import pytest
from deeds import first, first_async
from house import DEAD, DONE, LATER, RETRIED

from partbox import Dead, Event, RetryAfter
from partbox.errors import DownstreamUnavailable, PartboxError, PayloadError

HELD = 1.5  # seconds that the interpreter is held: longer than a heartbeat takes


def raises(error):
    def deed(event):
        raise error

    return deed


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


def test_any_error_of_a_handler_concerns_its_own_event_only(house):
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


def test_handlers_that_misbehave_harm_their_own_event_at_most(house, collect):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the coroutine that nobody awaits
        for name, (deed, ending) in ENDINGS.items():
            left = [deed]

            def once(event, left=left):
                return left.pop()(event) if left else None

            house.invite(name, deed if ending == DEAD else once, ending)
        house.live()
        collect()


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
    folder = tempfile.mkdtemp()
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
def test_changes_that_a_handler_makes_in_its_process_stop_no_other_handler(house, tmp_path, monkeypatch):
    """Each change stays for the next one, and the worker stops in the midst of them all."""
    monkeypatch.chdir(tmp_path)
    for name, change in CHANGES.items():
        house.invite(name, change, DONE)
    house.live_in_turn()


@pytest.mark.soak
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.usefixtures("whole")
def test_each_change_of_the_process_alone_stops_no_other_handler(house, change, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    house.invite("it", change, DONE)
    house.live()


def test_a_handler_that_holds_the_interpreter_delays_others_and_harms_none(open_house):
    house = open_house(lease=6, heartbeat=0.3)
    hold = ctypes.PyDLL(None).usleep
    house.invite("it", lambda event: nothing(hold(int(HELD * 1_000_000))), DONE)
    house.live()


def test_events_that_handlers_publish_are_delivered(house):
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
