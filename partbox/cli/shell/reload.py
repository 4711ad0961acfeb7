"""Starts a command anew whenever the application's code changes, for development.

An outer process looks at the files; the command runs in an inner one, which is told to end in order. One that has
failed is started again after the next change.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

import typer

from partbox.platform import STOP_SIGNALS

INNER = "PARTBOX_RELOADED"
"""The variable that the inner process has: the pid of the outer one."""
COMMAND = (sys.executable, "-c", "from partbox.cli import main; main()")
PAUSE = 0.3  # seconds between two looks at least
SHARE = 10  # a look may take this part of the time
FILES = (".py", "partbox.toml")
IGNORED_FOLDERS = {"__pycache__", "node_modules", "site-packages", "dist-packages"}

Stamps = dict[str, tuple[int, int, int]]


def is_inner() -> bool:
    """True in the process that is to run the command."""
    return INNER in os.environ


def end_with_outer() -> None:
    """Tell this process to end when the outer one is gone, if it was killed."""
    outer = int(os.environ[INNER])

    def end() -> None:
        while os.getppid() == outer:
            time.sleep(PAUSE)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end, name="partbox reload", daemon=True).start()


def run_reloading(command: Sequence[str], module: str) -> int:
    """Run the command until it is told to end or has done its work; its exit code.

    It is started anew when a file changes below the current folder, the folder of `module`, or another of `sys.path`
    that belongs to neither Python nor installed packages.
    """
    return _Reloader(command, [*find_roots(module)]).run()


class _Reloader:
    def __init__(self, command: Sequence[str], folders: Sequence[Path]) -> None:
        self._command = command
        self._folders = folders
        self._inner: subprocess.Popen[bytes] | None = None
        self._stop_signal: int | None = None

    def run(self) -> int:
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                signal.signal(number, self._forward_signal)
        while True:
            before = read_stamps(self._folders)
            code = 0 if self._stop_signal is not None else self._run_until_changed(before)
            if code is not None:
                return code

    def _run_until_changed(self, before: Stamps) -> int | None:
        """Run the command once; its exit code if that was the last time."""
        # In a group of its own: a terminal's Ctrl-C comes here alone, and is passed on once.
        env = os.environ | {INNER: str(os.getpid())}
        self._inner = inner = subprocess.Popen(self._command, env=env, process_group=0)
        if self._stop_signal is not None:
            inner.send_signal(self._stop_signal)  # it came while there was none
        changed = self._wait_for_change(before, inner)
        if changed is not None:
            typer.echo(f"partbox: {changed} has changed: the worker starts anew", err=True)
            inner.terminate()
        code = inner.wait()
        if self._stop_signal is not None or (changed is None and code == 0):
            return code
        if changed is None:
            typer.echo("partbox: it starts again when a file changes; Ctrl-C ends it", err=True)
            self._wait_for_change(before, None)
        return None

    def _wait_for_change(self, before: Stamps, inner: "subprocess.Popen[bytes] | None") -> str | None:
        """The file that has changed; None if `inner` has ended or a signal came before."""
        while self._stop_signal is None:
            began = time.monotonic()
            if (changed := find_change(before, read_stamps(self._folders))) is not None:
                return changed
            pause = max(PAUSE, SHARE * (time.monotonic() - began))
            if inner is None:
                time.sleep(pause)
                continue
            with suppress(subprocess.TimeoutExpired):
                inner.wait(pause)
                return None
        return None

    def _forward_signal(self, number: int, _: FrameType | None) -> None:
        self._stop_signal = number
        if self._inner is not None:
            self._inner.send_signal(number)


def find_roots(module: str) -> Iterator[Path]:
    """The folders whose files are the application's; never the whole disk."""
    installed = {Path(sysconfig.get_path(each)).resolve() for each in ("stdlib", "platstdlib", "scripts")}
    listed = {Path(each).resolve() for each in sys.path if Path(each).is_dir()} | {*_package_folder(module)}
    found = {each for each in listed if not installed & {each, *each.parents} and not IGNORED_FOLDERS & {*each.parts}}
    app_folders = {each for each in found | {Path.cwd()} if each != Path(each.anchor)}
    yield from (each for each in app_folders if not app_folders & {*each.parents})


def _package_folder(module: str) -> Iterator[Path]:
    """The folder of the package, which an editable install may have anywhere."""
    with suppress(Exception):  # whatever finders the application has installed
        spec = importlib.util.find_spec(module.partition(".")[0])
        if spec is not None and spec.origin is not None and Path(spec.origin).is_file():
            yield Path(spec.origin).resolve().parent


def read_stamps(folders: Sequence[Path]) -> Stamps:
    """Time, size and inode of every file that counts, by its path."""
    found: Stamps = {}
    for folder in folders:
        for path, subfolders, files in os.walk(folder):
            own = [each for each in subfolders if not each.startswith(".") and each not in IGNORED_FOLDERS]
            subfolders[:] = [] if "pyvenv.cfg" in files else own
            for name in files:
                if name.endswith(FILES):
                    with suppress(OSError):  # gone meanwhile
                        file = f"{path}/{name}"
                        stat = os.stat(file)
                        found[file] = stat.st_mtime_ns, stat.st_size, stat.st_ino
    return found


def find_change(before: Stamps, now: Stamps) -> str | None:
    """One file that is new, gone or changed."""
    changed = {name for name, _ in before.items() ^ now.items()}
    return os.path.relpath(min(changed)) if changed else None
