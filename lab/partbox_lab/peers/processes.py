"""The worker processes of one run, which print `ready`, wait for `go`, and report the events that they have handled.

    ready                   connected and waiting
    count PID TIME HANDLED  events handled so far
    seen PID TIME NUMBER    the time of the handler's call for an event, only in watched runs

Times are CLOCK_MONOTONIC in nanoseconds, one clock for all processes. A worker ends when its standard input does, so
that no worker outlives the benchmark."""

import json
import os
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

import psutil

from partbox.errors import PartboxError
from partbox_lab.peers.peer import Database, Peer, PeerRun


class PeerProcesses:
    """Worker processes and their reports, read by one thread per process."""

    def __init__(self, processes: Sequence[subprocess.Popen[str]], errors: IO[str]) -> None:
        self._processes = processes
        self._errors = errors
        self._ready = 0
        self._changed = threading.Condition()
        self.counts: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.seen: dict[int, int] = {}
        self._readers = [threading.Thread(target=self._read, args=(each,), daemon=True) for each in processes]
        for reader in self._readers:
            reader.start()

    @property
    def handled(self) -> int:
        """The number of events that all processes have handled so far."""
        with self._changed:
            return sum(reports[-1][1] for reports in self.counts.values() if reports)

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Wait until all processes are ready. Raise PartboxError after `timeout` seconds."""
        end = time.monotonic() + timeout
        while self._ready < len(self._processes):
            self.check()
            if time.monotonic() > end:
                raise PartboxError(f"the workers were not ready within {timeout:g} s")
            time.sleep(0.02)

    def go(self) -> None:
        """Start the work of all processes."""
        for each in self._processes:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()

    def check(self) -> None:
        """Raise PartboxError if a worker has ended."""
        for each in self._processes:
            if (code := each.poll()) is not None:
                self._errors.flush()
                self._errors.seek(0)
                raise PartboxError(_reason(self._errors.read()) or f"a worker ended with exit code {code}")

    def pids(self) -> list[int]:
        """Return the ids of the processes and of all their children."""
        return [member.pid for each in self._processes for member in _family(each)]

    def stop(self) -> None:
        """End all processes: first by the end of their input, then by killing."""
        for each in self._processes:
            with suppress(OSError):
                assert each.stdin is not None
                each.stdin.close()
        for each in self._processes:
            _end(each)
        for reader, each in zip(self._readers, self._processes, strict=True):
            reader.join(5)
            if not reader.is_alive() and each.stdout is not None:
                each.stdout.close()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._take(line.split())

    def _take(self, words: list[str]) -> None:
        with self._changed:
            match words:
                case ["ready"]:
                    self._ready += 1
                case ["count", pid, at, handled]:
                    self.counts[int(pid)].append((int(at), int(handled)))
                case ["seen", _, at, number]:
                    self.seen.setdefault(int(number), int(at))


@contextmanager
def working(peer: Peer, database: Database, run: PeerRun) -> Iterator[PeerProcesses]:
    """Start the workers of a run, yield them when all are ready, and end them afterwards."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        processes: list[subprocess.Popen[str]] = []
        workers = None
        try:
            for number, command in enumerate(peer.commands(run)):
                environment = _environment(peer, database, run, number)
                processes.append(_start(command, environment, errors))
            workers = PeerProcesses(processes, errors)
            workers.wait_ready()
            yield workers
        finally:
            (workers or PeerProcesses(processes, errors)).stop()


def prepare(command: list[str], database: Database, peer: Peer, run: PeerRun) -> None:
    """Run the peer's program that creates its schema. Raise PartboxError if the program fails."""
    environment = _environment(peer, database, run, 0)
    ran = subprocess.run(
        [*command, "install"], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    if ran.returncode:
        raise PartboxError(_reason(ran.stderr) or "no reason given")


def _reason(said: str) -> str:
    """Return the last line of a standard error that mentions an error, or else the last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line]
    return (telling or lines or [""])[-1]


def _environment(peer: Peer, database: Database, run: PeerRun, number: int) -> dict[str, str]:
    described = {
        "dsn": database.dsn,
        "order": run.order,
        "processes": run.processes,
        "watched": run.watched,
        "number": number,
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "PARTBOX_", "PYTHONPATH"))}
    return {**kept, **database.environment, **peer.environment(), "PEER_RUN": json.dumps(described)}


def _start(command: list[str], environment: dict[str, str], errors: IO[str]) -> subprocess.Popen[str]:
    # Ctrl-C reaches only the benchmark, because the workers are in sessions of their own. It ends them in its own
    # order.
    options: dict[str, Any] = {"env": environment, "stderr": errors, "text": True, "start_new_session": True}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)


def _end(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        for each in reversed(_family(process)):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait(10)


def _family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the process and all its children, or nothing if it has ended."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(process.pid)
        return [parent, *parent.children(recursive=True)]
    return []
