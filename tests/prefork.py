"""Starts `partbox` commands as processes of their own, forked from one that has imported everything already.

An interpreter that imports partbox costs about a second of a processor, a fork a few milliseconds. What is started is a
process like any other: its own session, environment, folder and files, `partbox.cli.main` from the beginning, worker
processes that are its children. These are what multiprocess would spawn: the command gets some spare forks at its
birth, while it has neither threads nor connections, and each runs what a spawned interpreter would be told to run
(`-c CODE`). When there are none left, an interpreter is spawned as usual.

    test process ── forker ── command ── spare, or worker process
                              (its own session)
"""

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

SPARE = 6
"""Forks that a command gets: enough for two databases with two worker processes each, or for some that die."""
HIGH = 500
"""Descriptors from here on are ours: what is handed to a spare keeps its number, and those are low."""
ENDING = 10.0
"""Seconds for the forker to end."""


class Command:
    """A running `partbox` command, with what tests use of Popen."""

    def __init__(self, forker: "Forker", pid: int) -> None:
        self._forker = forker
        self.pid = pid

    @property
    def returncode(self) -> int | None:
        return self._forker.codes.get(self.pid)

    def poll(self) -> int | None:
        """The exit code if it has ended, negative for a signal."""
        self._forker.listen(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired("partbox", timeout or 0)
            self._forker.listen(left)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class Forker:
    """The process that commands are forked from, as the test process sees it."""

    def __init__(self) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"import prefork; prefork.serve({its.fileno()})"],
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._socket = ours
        self.codes: dict[int, int] = {}
        self._started: list[int] = []
        atexit.register(self.close)

    def start(
        self, arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: Path, spare: int = SPARE
    ) -> Command:
        """Run `partbox ARGUMENTS` in a session of its own, what it prints going to `log`."""
        log.write_bytes(b"")  # there as soon as the command is
        job = {"arguments": arguments, "folder": str(folder), "environment": dict(environment), "log": str(log)}
        self._socket.send(json.dumps(job | {"spare": spare}).encode())
        while not self._started:
            self.listen(None)
        return Command(self, self._started.pop())

    def listen(self, timeout: float | None) -> None:
        """Take note of what the forker says, if it does so in time."""
        while select.select([self._socket], [], [], timeout)[0]:
            said = self._socket.recv(1_000)
            if not said:
                raise RuntimeError("the process that commands are forked from has ended")
            news, timeout = json.loads(said), 0
            if "started" in news:
                self._started.append(news["started"])
            else:
                self.codes[news["ended"]] = news["code"]

    def close(self) -> None:
        self._socket.close()
        try:
            self._process.wait(ENDING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_forkers: dict[int, Forker] = {}


def forker() -> Forker:
    """The one of this process, started when it is first asked for."""
    pid = os.getpid()
    if pid not in _forkers:
        _forkers[pid] = Forker()
    return _forkers[pid]


def serve(number: int) -> None:
    """Fork commands as the test process asks, until it has gone."""
    import partbox.cli
    import partbox.supervisor.child

    gc.collect()
    gc.freeze()
    job = _forked(socket.socket(fileno=number))
    if job is not None:
        _run(job, partbox.cli.main)


def _forked(control: socket.socket) -> dict[str, Any] | None:
    """What a command is to be, in the process forked for it; None in ours, when it is over."""
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control, *running], [], [])
        for descriptor in running.keys() & set(ready):
            pid = running.pop(descriptor)
            os.close(descriptor)
            _, status = os.waitpid(pid, 0)
            with suppress(OSError):
                control.send(json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}).encode())
        if control in ready:
            asked = control.recv(1_000_000)
            if not asked:
                for pid in running.values():  # a test process that was killed has ended nobody
                    with suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
                return None
            pid = os.fork()
            if not pid:
                control.close()
                for descriptor in running:
                    os.close(descriptor)
                return dict(json.loads(asked))
            running[os.pidfd_open(pid)] = pid
            control.send(json.dumps({"started": pid}).encode())


def _run(job: dict[str, Any], main: Callable[[], Any]) -> None:
    os.setsid()
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    time.tzset()
    sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", *sys.path)]
    log = os.open(job["log"], os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    spares = _spares(job["spare"])
    if isinstance(spares, str):
        exec(spares, {"__name__": "__main__"})
        return
    from multiprocess import util

    spawn = util.spawnv_passfds
    util.spawnv_passfds = lambda path, args, fds: _hand_over(spares, args, fds) or spawn(path, args, fds)
    sys.argv = ["partbox", *job["arguments"]]
    main()


def _spares(count: int) -> list[tuple[int, socket.socket]] | str:
    """The pids of spare forks and how to reach them; in such a fork, the code that it is to run."""
    made: list[tuple[int, socket.socket]] = []
    for _ in range(count):
        ours, its = socket.socketpair()
        pid = os.fork()
        if not pid:
            ours.close()
            for _, other in made:
                other.close()
            return _awaited(its)
        its.close()
        made.append((pid, ours))
    return made


def _awaited(source: socket.socket) -> str:
    """Wait for code, and for what a spawned process would have inherited; end if nobody will send any."""
    # Ctrl-C is for those who run.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    high = socket.socket(fileno=os.dup2(source.fileno(), HIGH))
    source.close()
    message, descriptors, _, _ = socket.recv_fds(high, 100_000, 100)
    if not message:
        os._exit(0)
    high.close()
    job = json.loads(message)
    moved = []
    for number, descriptor in enumerate(descriptors):
        moved.append(os.dup2(descriptor, HIGH + 1 + number))
        os.close(descriptor)
    for descriptor, number in zip(moved, job["descriptors"], strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, job["mask"])
    sys.argv = job["argv"]
    return str(job["code"])


def _hand_over(spares: list[tuple[int, socket.socket]], args: Sequence[Any], descriptors: Sequence[int]) -> int | None:
    """Let a spare fork run what an interpreter would be spawned for; its pid, or None if there is no such fork."""
    said = [os.fsdecode(each) for each in args]
    if "-c" not in said:
        return None
    code, *rest = said[said.index("-c") + 1 :]
    numbers = sorted({int(each) for each in descriptors})
    mask = [int(each) for each in signal.pthread_sigmask(signal.SIG_BLOCK, [])]
    job = {"code": code, "argv": ["-c", *rest], "descriptors": numbers, "mask": mask}
    while spares:
        pid, there = spares.pop()
        with there, suppress(OSError):  # it may have been killed
            socket.send_fds(there, [json.dumps(job).encode()], numbers)
            return pid
    return None
