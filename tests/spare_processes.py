"""Spare forks of a command, in which what multiprocess would spawn runs instead: worker processes above all.

A command makes them at its birth, while it has neither threads nor connections; they are its children, as what it
spawns is. Each waits for what a spawned interpreter is told (`-c CODE`), and gets what this would inherit: the
descriptors, by the same numbers, and the variables that the command has set since. Where none is left, an interpreter
is spawned as usual. A spare ends with its command.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

UNNAMED = 2
"""Worker processes of a command that does not name their number, at each of its databases."""
REPLACED = 2
"""Worker processes of a command that a test kills, mostly; none has more to replace than it has."""
HIGH = 500
"""Descriptors from here on are ours: those that a spare is given keep their numbers, which are low."""


def needed(command: Sequence[str]) -> int:
    """Enough for the worker processes of a command, their resource tracker, and those that replace others: each that
    is left over costs 5 ms of CPU."""
    named = [int(count) for option, count in pairwise(command) if option == "--processes" and count.isdigit()]
    processes = (named[-1] if named else UNNAMED) * max(1, command.count("--dsn"))
    return processes + 1 + min(processes, REPLACED)


def make(count: int) -> str | None:
    """Make so many, for what this process will spawn. Returns in each spare too, with the code that it is to run."""
    made: list[tuple[int, socket.socket]] = []
    for _ in range(count):
        ours, its = socket.socketpair()
        pid = os.fork()
        if not pid:
            for other in (ours, *(there for _, there in made)):
                other.close()
            return _awaited(its)
        its.close()
        made.append((pid, ours))
    if made:
        from multiprocess import util

        born, spawn = dict(os.environ), util.spawnv_passfds
        util.spawnv_passfds = lambda path, args, fds: (
            _hand_over(made, args, fds, _changes(born)) or spawn(path, args, fds)
        )
    return None


def _changes(born: dict[str, str]) -> dict[str, str | None]:
    """Variables that are not as they were at birth; None for those that are gone."""
    return {name: os.environ.get(name) for name, _ in born.items() ^ os.environ.items()}


def _hand_over(
    spares: list[tuple[int, socket.socket]],
    args: Sequence[Any],
    descriptors: Sequence[int],
    variables: dict[str, str | None],
) -> int | None:
    """Let a spare run what an interpreter would be spawned for; its pid, or None if there is none."""
    said = [os.fsdecode(each) for each in args]
    if "-c" not in said:
        return None
    code, *rest = said[said.index("-c") + 1 :]
    numbers = sorted({int(each) for each in descriptors})
    mask = [int(each) for each in signal.pthread_sigmask(signal.SIG_BLOCK, [])]
    job = {"code": code, "argv": ["-c", *rest], "descriptors": numbers, "mask": mask, "variables": variables}
    while spares:
        pid, there = spares.pop()
        with there, suppress(OSError):  # it may have been killed
            socket.send_fds(there, [json.dumps(job).encode()], numbers)
            return pid
    return None


def _awaited(source: socket.socket) -> str:
    """Wait for code, and for what a spawned process would have inherited; end if nobody will send any."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for those who run
    with socket.socket(fileno=os.dup2(source.fileno(), HIGH)) as there:
        source.close()
        message, descriptors, _, _ = socket.recv_fds(there, 1 << 16, 100)
    if not message:
        os._exit(0)
    job = json.loads(message)
    moved = [os.dup2(descriptor, HIGH + number) for number, descriptor in enumerate(descriptors)]
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, number in zip(moved, job["descriptors"], strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    for name, value in job["variables"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, job["mask"])
    sys.argv = job["argv"]
    return str(job["code"])
