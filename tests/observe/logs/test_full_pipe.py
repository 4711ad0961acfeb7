"""A log whose reader does not read: nobody waits for it, and what is lost is counted."""

import fcntl
import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from waiting import eventually

from partbox import Event, Outbox
from partbox.observe.logs import setup as room
from partbox.observe.logs.formats import JsonLines, TextLines
from partbox.observe.logs.setup import MAX_WAITING, StallTolerantWriter, StderrHandler, configure_logging


class Pipe:
    """A pipe with little room, which is read only when the test says so."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, 4_096)
        self.open = {self.reader, self.writer}
        self._outlets: list[StallTolerantWriter] = []

    def fill(self) -> None:
        os.set_blocking(self.writer, False)
        with suppress(BlockingIOError):
            while True:
                os.write(self.writer, b"." * 512)
        os.set_blocking(self.writer, True)

    def read(self) -> bytes:
        return os.read(self.reader, 1 << 20)

    def read_until(self, end: bytes) -> bytes:
        got = b""
        while end not in got:
            got += self.read()
        return got

    def outlet(self, note: Callable[[int], bytes]) -> StallTolerantWriter:
        self._outlets.append(StallTolerantWriter(self.writer, note))
        return self._outlets[-1]

    def close(self, *ends: int) -> None:
        for end in ends or tuple(self.open):
            self.open.discard(end)
            os.close(end)

    def end(self) -> None:
        """Close both ends, the writer last: its number may be another pipe's at once, and is not to be written to."""
        if self.reader in self.open:
            self.close(self.reader)
        for outlet in self._outlets:
            eventually(lambda of=outlet: of._written_count == of._accepted_count and not of._lost_count)
        self.close()


@pytest.fixture
def pipe():
    made = Pipe()
    yield made
    made.end()


@pytest.fixture
def rescue(pipe):
    """Set when somebody had to wait for the pipe for a minute: then it is read, so that a test can fail, and end."""
    late = threading.Event()

    def read():
        late.set()
        while pipe.read():
            pass

    timer = threading.Timer(60, read)
    timer.daemon = True
    timer.start()
    yield late
    timer.cancel()


def lost(count: int) -> bytes:
    return f"lost {count}\n".encode()


def test_a_log_line_is_written_before_the_logging_call_returns(pipe):
    outlet = pipe.outlet(lost)
    for number in range(20):
        outlet.write(f"{number}\n".encode())
        assert pipe.read() == f"{number}\n".encode()


def test_lines_that_a_stalled_reader_does_not_take_are_queued_up_to_a_bound_and_then_counted(pipe, monkeypatch):
    monkeypatch.setattr(room, "WRITE_TIMEOUT", 0.01)
    pipe.fill()
    outlet = pipe.outlet(lost)
    for number in range(MAX_WAITING + 1_000):
        outlet.write(f"line {number}\n".encode())
    got = pipe.read_until(b"lost 1000\n")
    assert got.lstrip(b".") == b"".join(f"line {number}\n".encode() for number in range(MAX_WAITING)) + b"lost 1000\n"

    def heard() -> bool:
        outlet.write(b"again\n")
        return not outlet._is_stalled

    eventually(heard)
    assert b"again\n" in pipe.read()


def test_only_the_first_write_waits_for_a_stalled_reader(pipe, monkeypatch):
    """Patience is asked of the first alone: a process that says much is not slowed line by line."""
    waits = []
    wait_for = threading.Condition.wait_for

    def counting(self, check, timeout=None):
        if timeout is not None:
            waits.append(timeout)
        return wait_for(self, check, timeout)

    monkeypatch.setattr(room, "WRITE_TIMEOUT", 0.01)
    monkeypatch.setattr(threading.Condition, "wait_for", counting)
    pipe.fill()
    outlet = pipe.outlet(lost)
    for _ in range(10):
        outlet.write(b"x\n")
    assert waits == [0.01]


def test_a_line_longer_than_the_pipe_comes_whole(pipe):
    outlet = pipe.outlet(lost)
    long = b"x" * 100_000 + b"\n"
    thread = threading.Thread(target=outlet.write, args=(long,))
    thread.start()
    assert pipe.read_until(b"\n") == long
    thread.join()


def test_writing_goes_on_when_the_reader_has_closed_the_pipe(pipe):
    pipe.close(pipe.reader)
    outlet = pipe.outlet(lost)
    for _ in range(3):
        outlet.write(b"to nobody\n")
    outlet.flush()
    assert not outlet._is_stalled


def test_a_pipe_that_somebody_made_non_blocking_loses_no_line(pipe):
    os.set_blocking(pipe.writer, False)
    outlet = pipe.outlet(lost)
    long = b"x" * 50_000 + b"\n"
    thread = threading.Thread(target=outlet.write, args=(long,))
    thread.start()
    assert pipe.read_until(b"\n") == long
    thread.join()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_logs_by_itself(pipe):
    outlet = pipe.outlet(lost)
    outlet.write(b"parent\n")
    child = os.fork()
    if child == 0:
        outlet.write(b"child\n")
        outlet.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert pipe.read_until(b"child\n") == b"parent\nchild\n"


@pytest.mark.parametrize("formatter", [TextLines, JsonLines])
def test_the_count_of_lost_lines_is_formatted_like_every_other_line(pipe, monkeypatch, formatter):
    monkeypatch.setattr(room, "MAX_WAITING", 1)
    monkeypatch.setattr(room, "WRITE_TIMEOUT", 0.01)
    monkeypatch.setattr(sys, "stderr", os.fdopen(os.dup(pipe.writer), "w"))
    with sys.stderr:
        handler = StderrHandler()
        handler.setFormatter(formatter())
        pipe.fill()
        for number in range(4):
            handler.handle(logging.makeLogRecord({"msg": "line %d", "args": (number,), "levelname": "INFO"}))
        got = pipe.read_until(b"3 log lines").lstrip(b".")
    first, second = got.splitlines()
    assert b"line 0" in first
    if formatter is JsonLines:
        said = json.loads(second)
        assert (said["event"], said["level"], said["lines"]) == ("partbox.log_lines_lost", "WARNING", 3)
    else:
        assert b"WARNING partbox.log" in second


def test_a_line_that_cannot_be_formatted_is_told_and_harms_nobody(pipe, monkeypatch):
    monkeypatch.setattr(sys, "stderr", os.fdopen(os.dup(pipe.writer), "w"))
    with sys.stderr:
        handler = StderrHandler()
        handler.setFormatter(TextLines())
        handler.handle(logging.makeLogRecord({"msg": "%d", "args": ("no number",)}))
        assert b"TypeError" in pipe.read()


def test_a_worker_delivers_beats_and_stops_though_nobody_reads_its_log(dsn, conn, pipe, rescue, monkeypatch):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", logging.INFO)
    monkeypatch.setattr(sys, "stderr", os.fdopen(os.dup(pipe.writer), "w"))
    pipe.fill()
    outbox = Outbox(dsn, heartbeat=0.1)
    outbox.on("Counted")(lambda event: None)
    with sys.stderr:
        configure_logging("text")
        (handler,) = root.handlers
        assert isinstance(handler, StderrHandler)
        beats = "select max(heartbeat_at) from partbox.instance"
        with outbox.worker():
            with conn.transaction():
                outbox.publish(conn, Event("Counted", 1, aggregate_type="Key", aggregate_id="k"))
            left = "select count(*) from partbox.record_status where status <> 'done'"
            eventually(lambda: conn.execute(left).fetchone() == (0,))
            before = conn.execute(beats).fetchone()
            eventually(lambda: conn.execute(beats).fetchone() > before)
        assert conn.execute(beats).fetchone() == (None,)
        assert not rescue.is_set()
        said = pipe.read_until(b"delivery in subscription 'default' has ended")
        assert b"delivering in this process in subscription 'default'" in said


def test_standard_error_that_is_a_file_is_written_by_the_plain_stream_handler(tmp_path, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with (tmp_path / "log").open("w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        configure_logging("text")
        assert type(logging.getLogger().handlers[0]) is logging.StreamHandler
