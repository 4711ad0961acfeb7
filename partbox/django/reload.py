"""Restarts a worker whenever a file of the project changes, for development."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from django.utils import autoreload

INNER = "PARTBOX_DJANGO_RELOADED"
CHANGED = 3  # the exit code, as with runserver


def reloading(run: Callable[[], None]) -> None:
    """Run in a process of its own, which ends gracefully when a file changes, and is then restarted."""
    if os.environ.get(INNER) != "1":
        sys.exit(_outer())
    changed = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(CHANGED if changed.is_set() else 0))  # until the worker hears it
    threading.Thread(target=_watch, args=(changed,), daemon=True).start()
    run()
    if changed.is_set():
        sys.exit(CHANGED)


def _outer() -> int:
    """Ctrl-C reaches both processes; the inner one decides when it is over, unless there is none at that moment."""
    inner: subprocess.Popen[bytes] | None = None
    told = False

    def pass_on(number: int, _: object) -> None:
        nonlocal told
        told = True
        if inner is not None and number != signal.SIGINT:
            inner.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    code = CHANGED
    while code == CHANGED and not told:
        inner = subprocess.Popen(autoreload.get_child_arguments(), env={**os.environ, INNER: "1"})
        code = inner.wait()
    return 0 if code == CHANGED else code


class _Watcher(autoreload.StatReloader):  # the other one needs a daemon
    def __init__(self, changed: threading.Event) -> None:
        super().__init__()
        self._changed = changed

    def notify_file_changed(self, path: object) -> None:
        if not self._changed.is_set():
            self._changed.set()
            os.kill(os.getpid(), signal.SIGTERM)


def _watch(changed: threading.Event) -> None:
    for _ in _Watcher(changed).tick():
        if changed.is_set():
            return
