"""Whole lines, or nothing of them, in a file, in a pipe and on the standard output."""

import asyncio
import json
import os
import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import pytest

from partbox.errors import DownstreamUnavailable
from partbox.sinks import appending
from partbox.sinks.lines import FileSink, StdoutSink

LINE = b"x" * 99 + b"\n"


@contextmanager
def limited(size: int):
    """No file grows beyond this size: a write takes a part, as of a disk that fills up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_lines_that_did_not_fit_into_a_file_leave_nothing_behind(tmp_path):
    path = tmp_path / "lines"
    appending.append(path, LINE)
    with limited(150):
        for _ in range(3):
            with pytest.raises(OSError, match="File too large"):
                appending.append(path, LINE)
    assert path.read_bytes() == LINE
    appending.append(path, LINE)
    assert path.read_bytes() == 2 * LINE


def test_an_incomplete_line_of_a_killed_process_does_not_swallow_the_next_line(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"torn")
    appending.append(path, LINE)
    assert path.read_bytes() == b"torn\n" + LINE


def test_a_write_only_file_can_be_appended_to(tmp_path, monkeypatch):
    path = tmp_path / "lines"
    path.write_bytes(LINE)
    monkeypatch.setattr(os, "access", lambda *_: False)
    appending.append(path, LINE)
    assert path.read_bytes() == 2 * LINE


def append_some(path: Path, letter: bytes) -> None:
    for _ in range(50):
        appending.append(path, letter * 9_999 + b"\n")


def test_lines_of_several_processes_and_threads_do_not_mix(tmp_path):
    path = tmp_path / "lines"
    children = [get_context("fork").Process(target=append_some, args=(path, each)) for each in (b"a", b"b")]
    for each in children:
        each.start()
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(append_some, (path, path), (b"c", b"d")))
    for each in children:
        each.join()
    lines = path.read_bytes().splitlines()
    assert len(lines) == 200
    assert {len({*line}) for line in lines} == {1}


@contextmanager
def printing_to(monkeypatch, handle: int):
    """The standard output is this descriptor."""
    with os.fdopen(handle, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        yield
        monkeypatch.undo()


@pytest.mark.parametrize("flags", [0, os.O_APPEND], ids=[">", ">>"])
def test_printed_lines_that_did_not_fit_leave_nothing_behind(tmp_path, monkeypatch, flags):
    path = tmp_path / "out"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | flags)
    with printing_to(monkeypatch, handle):
        sys.stdout.write("before\n")
        with limited(150):
            appending.append_to_stdout(LINE)
            with pytest.raises(OSError, match="File too large"):
                appending.append_to_stdout(LINE)
        appending.append_to_stdout(LINE)
        sys.stdout.write("after\n")
    assert path.read_bytes() == b"before\n" + 2 * LINE + b"after\n"


def print_some(handle: int, letter: bytes) -> None:
    sys.stdout = os.fdopen(handle, "w")
    for _ in range(20):
        appending.append_to_stdout(letter * 99_999 + b"\n")


def test_long_lines_of_several_processes_do_not_mix_in_a_pipe():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)  # as another process that shares it may make it
    children = [get_context("fork").Process(target=print_some, args=(writer, each)) for each in (b"a", b"b", b"c")]
    for each in children:
        each.start()
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        lines = pipe.read().splitlines()
    for each in children:
        each.join()
    assert [each.exitcode for each in children] == [0, 0, 0]
    assert len(lines) == 60
    assert {len({*line}) for line in lines} == {1}


@pytest.mark.parametrize("kind", [FileSink, StdoutSink])
def test_a_full_disk_is_not_charged_to_an_event(tmp_path, monkeypatch, kind):
    path = tmp_path / "lines"
    sink = FileSink(path) if kind is FileSink else StdoutSink()
    monkeypatch.setattr("partbox.sinks.lines.line_of", lambda message: json.dumps(message).encode() + b"\n")
    printing, refused = printing_to(monkeypatch, os.open(path, os.O_WRONLY | os.O_CREAT)), "File too large"
    with printing, limited(10), pytest.raises(DownstreamUnavailable, match=refused):
        asyncio.run(sink.send(["x" * 99]))
    assert path.read_bytes() == b""
