"""`partbox …` and `python …` in processes of their own, each forked from one that has imported partbox.

A process that starts anew spends a second of CPU on imports before it does what a test wants to see. A few tests of
every kind start the installed command all the same. What a command spawns is a fork too: see spare_processes.
"""

import atexit
import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import pytest
import spare_processes
from waiting import eventually

PATIENCE = 120.0
SPAWNING = {"worker", "relay", "demo", "chaos", "bench", "python"}
"""Commands that have processes of their own."""
LONGEST = 1 << 17  # bytes of a request; the variables of the environment are most of it


class Command:
    """As much of subprocess.Popen as tests need; a session of its own, as a terminal gives one."""

    def __init__(self, forks: "Forks", pid: int, args: list[str], out: IO[str] | None, err: IO[str] | None) -> None:
        self._forks = forks
        self.pid = pid
        self.args = args
        self.stdout = out
        self.stderr = err
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        if self.returncode is None:
            self.returncode = self._forks.code(self.pid)
        return self.returncode

    def wait(self, timeout: float = PATIENCE) -> int:
        eventually(lambda: self.poll() is not None, timeout)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float = PATIENCE) -> tuple[str, str]:
        """The rest of its output, up to its end."""
        with ThreadPoolExecutor(2) as both:  # or one that is full would stop it
            out, err = both.map(_rest, (self.stdout, self.stderr))
        self.wait(timeout)
        self.close()
        return out, err

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        for pipe in (self.stdout, self.stderr):
            if pipe:
                pipe.close()


class Forks:
    """The process that forks. It forks from its only thread, when it has imported `modules` beside the commands."""

    def __init__(self, *modules: str) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            program = f"from forked_commands import serve; serve({theirs.fileno()}, *{modules!r})"
            path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
            self._process = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": path},
            )

    def start(self, *command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> Command:
        """Start it, its output and its errors in pipes."""
        (out, out_theirs), (err, err_theirs) = os.pipe(), os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            pid = self._fork(command, [nothing, out_theirs, err_theirs], cwd, env)
        finally:
            for fd in (nothing, out_theirs, err_theirs):
                os.close(fd)
        return Command(self, pid, list(command), os.fdopen(out, encoding="utf-8"), os.fdopen(err, encoding="utf-8"))

    def start_into(self, log: Path, *command: str, cwd: Path, env: dict[str, str], spare: int | None = None) -> Command:
        """Start it, its output and its errors in a file, which is there as soon as this returns."""
        with open(os.devnull) as nothing, log.open("wb") as file:
            pid = self._fork(command, [nothing.fileno(), file.fileno(), file.fileno()], cwd, env, spare)
        return Command(self, pid, list(command), None, None)

    def start_on(self, terminal: int, *command: str, env: dict[str, str]) -> Command:
        """Start it on a terminal, which becomes its own."""
        return Command(self, self._fork(command, [terminal] * 3, None, env), list(command), None, None)

    def code(self, pid: int) -> int | None:
        answer = self._ask({"ended": pid}, [])
        return None if answer is None else int(answer)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def _fork(
        self,
        command: Sequence[str],
        files: list[int],
        cwd: Path | None,
        env: dict[str, str] | None,
        spare: int | None = None,
    ) -> int:
        if spare is None:
            spare = spare_processes.needed(command) if SPAWNING & {*command} else 0
        asked = {"argv": command, "cwd": str(cwd or Path.cwd()), "env": env or dict(os.environ), "spare": spare}
        return int(self._ask(asked, files))

    def _ask(self, question: dict[str, Any], files: list[int]) -> Any:
        socket.send_fds(self._socket, [json.dumps(question).encode()], files)
        return json.loads(self._socket.recv(LONGEST))


def _rest(pipe: IO[str] | None) -> str:
    return pipe.read() if pipe and not pipe.closed else ""


@cache
def shared() -> Forks:
    """The one of this process, started when it is first asked for. It ends with this process."""
    forks = Forks()
    atexit.register(forks.close)
    return forks


@pytest.fixture(scope="session")
def forks() -> Forks:
    return shared()


def serve(number: int, *modules: str) -> None:
    """Fork commands, and tell how they ended, until nobody asks any more."""
    from partbox.cli import command

    command()  # those that are forked need not import it
    for module in modules:
        import_module(module)
    gc.freeze()
    running: set[int] = set()
    with socket.socket(fileno=number) as asking:
        while (found := socket.recv_fds(asking, LONGEST, 3))[0]:
            asked, files = json.loads(found[0]), found[1]
            if "ended" in asked:
                pid, status = os.waitpid(asked["ended"], os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if pid else None
                running.discard(pid)
            elif not (answer := os.fork()):
                asking.close()
                _become(asked, files)
                _run_to_its_end(spare_processes.make(asked["spare"]))
            else:
                running.add(answer)
            for file in files:
                os.close(file)
            asking.send(json.dumps(answer).encode())
    for pid in running:  # a test process that was killed has ended nobody
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _become(asked: dict[str, Any], files: list[int]) -> None:
    """Be as a process that was started anew: its files, folder, variables, arguments, signals."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv = asked["argv"]
    sys.stdin, sys.stdout = os.fdopen(0, encoding="utf-8"), os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace")


def _run_to_its_end(code: str | None) -> None:
    """Run it, and end as an interpreter does, but for taking all of it apart: of a fork that costs 40 ms of CPU.

    A program of a test's own, and what ends otherwise than by `sys.exit`, ends as Python ends it.
    """
    program = code is None and sys.argv[0] != "partbox"
    try:
        _run(code)
    except SystemExit as end:
        if program or not (end.code is None or isinstance(end.code, int)):
            raise
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        try:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        except (AttributeError, OSError, ValueError):  # there is none, or nobody who reads it: Python knows what to say
            raise end from None
        os._exit((end.code or 0) & 0xFF)


def _run(code: str | None) -> None:
    """Run what `sys.argv` says, as a shell would; a spare runs the code that it was given."""
    if code is not None:
        exec(code, {"__name__": "__main__"})
        sys.exit()
    sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", *sys.path)]
    if sys.argv[0] == "partbox":
        from partbox.cli import main

        main()
    del sys.argv[0]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path.cwd())
        runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit()
