"""Environments that run an application in an unusual way: with green threads, or forked by uWSGI.

The threads of a worker stop, or run in no process that serves, if gevent replaces locks and threads that partbox has
already taken, if psycopg blocks the only thread of eventlet, or if uWSGI forks after the start of a worker."""

import logging
import os
import sys
from collections.abc import Sequence

from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event

log = logging.getLogger("partbox.supervisor")


def _is_patched_by_gevent() -> bool:
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def _is_patched_by_eventlet() -> bool:
    patcher = sys.modules.get("eventlet.patcher")
    return patcher is not None and bool(patcher.is_monkey_patched("thread"))


# True if gevent had patched threads before partbox took any. Then all threads are green, and workers run.
_was_patched_by_gevent = _is_patched_by_gevent()


def patch_first(program: str) -> str:
    """Return a Python program's text, preceded by a line that applies gevent's patches if this process has them."""
    # Then gevent patches that program too.
    return f"from gevent import monkey; monkey.patch_all(); {program}" if _is_patched_by_gevent() else program


def restart_patched(program: str) -> None:
    """Restart this process with gevent's patches applied first, if gevent patched threads after partbox's import."""
    # The new process runs the given Python program with the same arguments.
    if _is_patched_by_gevent() and not _was_patched_by_gevent:
        # For the text of a program, Python would look for modules in the working directory first.
        code = patch_first(f"import sys; sys.path[:] = filter(None, sys.path); {program}")
        flags = list_interpreter_flags(sys.orig_argv, sys.argv)
        os.execv(sys.executable, [sys.executable, *flags, "-c", code, *sys.argv[1:]])  # noqa: S606


def list_interpreter_flags(original: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Return the options of Python itself, such as `-O`, from `sys.orig_argv` and `sys.argv`."""
    # Before the program's arguments, the command line may end with the program: a file, or `-c` or `-m` with a name.
    return [option for option in original[1 : len(original) - len(arguments)] if option not in ("-c", "-m")]


def refuse_green_threads() -> None:
    """Raise PartboxError if patches of gevent or eventlet in this process would make a worker's threads stop."""
    if _is_patched_by_gevent() and not _was_patched_by_gevent:
        raise PartboxError(
            "gevent has patched threads since partbox was imported, and a worker would hang: call "
            "monkey.patch_all() before the first import of partbox"
        )
    if _is_patched_by_eventlet():
        raise PartboxError(
            "eventlet has patched threads, and psycopg would block all green threads: publish here, and deliver by "
            "`partbox worker` with a module that does not patch threads"
        )


def warn_of_uwsgi(subscription: str) -> None:
    """Log a warning if a worker in this uWSGI process would deliver nothing."""
    # That is so if uWSGI will fork this process and run no threads in the children.
    # The uWSGI server itself provides the module, which cannot be installed.
    uwsgi = sys.modules.get("uwsgi")
    if uwsgi is None or uwsgi.worker_id() != 0 or not (uwsgi.masterpid() or uwsgi.numproc > 1):
        return
    if _is_enabled(uwsgi.opt.get("enable-threads")) or _is_enabled(uwsgi.opt.get("threads")):
        return
    text = (
        "uWSGI loads the application before it forks, without --enable-threads: this worker delivers nothing in "
        "processes that serve requests, and perhaps nothing at all: give uWSGI --enable-threads and --lazy-apps, or "
        "run `partbox worker` beside uWSGI"
    )
    log_event(log, "before_fork", text, subscription=subscription)


def _is_enabled(option: object) -> bool:
    """Return True if an option of uWSGI is set."""
    # The value is True from the command line and bytes from a file.
    return option is not None and option not in (False, b"false", b"0", b"")
