"""Restarts a command when the application's code changes, for development. An outer process watches the files. The
command runs in an inner process, which is terminated in order and started again."""

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

# The environment variable of the inner process that holds the pid of the outer one.
INNER = "PARTBOX_RELOADED"
COMMAND = (sys.executable, "-c", "from partbox.cli import main; main()")
PAUSE = 0.3  # seconds between two scans of the files, at least
SHARE = 10  # a scan takes at most this fraction of the time
FILES = (".py", "partbox.toml")
IGNORED_FOLDERS = {"__pycache__", "node_modules", "site-packages", "dist-packages"}

Stamps = dict[str, tuple[int, int, int]]


def is_inner() -> bool:
    """Return True if this is the child process in which `--reload` runs the command."""
    # The parent process watches the files.
    return INNER in os.environ


def end_with_outer() -> None:
    """Start a thread that terminates this child process of `--reload` when its parent is gone."""
    # The parent process watches the files. It may be gone after a kill.
    outer = int(os.environ[INNER])

    def end() -> None:
        while os.getppid() == outer:
            time.sleep(PAUSE)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end, name="partbox reload", daemon=True).start()


def run_reloading(command: Sequence[str], module: str) -> int:
    """Run the command in a child process, restart it when an application file changes, and return the exit code."""
    # The run ends at a signal or at the command's own success. After a failure, the command starts again when a file
    # changes. Watched are the files below the current folder, the folder of `module`, and folders of `sys.path` that
    # belong neither to Python nor to installed packages.
    return _Reloader(command, [*find_roots(module)]).run_reloading()


class _Reloader:
    def __init__(self, command: Sequence[str], folders: Sequence[Path]) -> None:
        self._command = command
        self._folders = folders
        self._inner: subprocess.Popen[bytes] | None = None
        self._stop_signal: int | None = None

    def run_reloading(self) -> int:
        for number in STOP_SIGNALS:
            # A signal that is ignored stays so, as under nohup.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._forward_signal)
        while True:
            before = read_stamps(self._folders)
            code = 0 if self._stop_signal is not None else self._run_until_changed(before)
            if code is not None:
                return code

    def _run_until_changed(self, before: Stamps) -> int | None:
        # The result is the command's exit code, or None if a file changed and the command must run again.
        env = os.environ | {INNER: str(os.getpid())}
        # In a process group of its own, the inner process does not get the Ctrl-C of the terminal. The outer one passes
        # it on.
        self._inner = inner = subprocess.Popen(self._command, env=env, process_group=0)
        # The signal arrived before there was an inner process.
        if self._stop_signal is not None:
            inner.send_signal(self._stop_signal)
        changed = self._wait_for_change(before, inner)
        if changed is not None:
            typer.echo(f"partbox: {changed} has changed: the worker restarts", err=True)
            inner.terminate()
        code = inner.wait()
        if self._stop_signal is not None or (changed is None and code == 0):
            return code
        if changed is None:
            typer.echo("partbox: the worker restarts when a file changes; Ctrl-C ends it", err=True)
            self._wait_for_change(before, None)
        return None

    def _wait_for_change(self, before: Stamps, inner: "subprocess.Popen[bytes] | None") -> str | None:
        # The result is the path of the changed file, or None if the child process or a signal ended the wait.
        # `inner` is the child process.
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
    """Yield the folders of the application that are watched for file changes."""
    # The root of the file system is never watched.
    installed = {Path(sysconfig.get_path(each)).resolve() for each in ("stdlib", "platstdlib", "scripts")}
    listed = {Path(each).resolve() for each in sys.path if Path(each).is_dir()} | {*_find_package_folder(module)}
    found = {each for each in listed if not installed & {each, *each.parents} and not IGNORED_FOLDERS & {*each.parts}}
    app_folders = {each for each in found | {Path.cwd()} if each != Path(each.anchor)}
    yield from (each for each in app_folders if not app_folders & {*each.parents})


def _find_package_folder(module: str) -> Iterator[Path]:
    # An editable install may have it anywhere.
    # The application may have installed import finders that raise any error.
    with suppress(Exception):
        spec = importlib.util.find_spec(module.partition(".")[0])
        if spec is not None and spec.origin is not None and Path(spec.origin).is_file():
            yield Path(spec.origin).resolve().parent


def read_stamps(folders: Sequence[Path]) -> Stamps:
    """Return the modification time, size and inode of every watched file in the folders, by path."""
    found: Stamps = {}
    for folder in folders:
        for path, subfolders, files in os.walk(folder):
            own = [each for each in subfolders if not each.startswith(".") and each not in IGNORED_FOLDERS]
            subfolders[:] = [] if "pyvenv.cfg" in files else own
            for name in files:
                if name.endswith(FILES):
                    # The file may have been deleted meanwhile.
                    with suppress(OSError):
                        file = f"{path}/{name}"
                        stat = os.stat(file)
                        found[file] = stat.st_mtime_ns, stat.st_size, stat.st_ino
    return found


def find_change(before: Stamps, now: Stamps) -> str | None:
    """Return the path of a file that was added, removed or changed between two scans of the files, or None."""
    # The file was added, removed or changed.
    changed = {name for name, _ in before.items() ^ now.items()}
    return os.path.relpath(min(changed)) if changed else None
