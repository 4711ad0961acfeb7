"""A Python from which the calls of Linux are taken away that another system lacks: that of `PARTBOX_TEST_PLATFORM`.

Libraries are imported as on Linux, since on the other system they would use what only that has.
"""

import asyncio
import builtins
import io
import os
import select
import signal
import socket
import sys
import sysconfig
import time
import tty
import webbrowser
from importlib.machinery import SourceFileLoader
from types import ModuleType

import multiprocess.connection
import multiprocess.popen_spawn_posix
import multiprocess.sharedctypes
import multiprocess.util
import psutil

PLATFORM = os.environ["PARTBOX_TEST_PLATFORM"]
MODULES = (asyncio, os, select, signal, socket, time)
LINUX_ALONE = """
    eventfd eventfd_read eventfd_write memfd_create pidfd_open pipe2 posix_fadvise sched_getaffinity sched_setaffinity
    copy_file_range splice getrandom setns unshare CLOCK_BOOTTIME epoll SOCK_NONBLOCK SOCK_CLOEXEC AF_NETLINK AF_PACKET
    pidfd_send_signal sigtimedwait SIGPWR SIGRTMIN SIGRTMAX SIGSTKFLT
"""
UNIX_ALONE = """
    fork register_at_fork getuid geteuid getgid getegid getpgid getpgrp setsid pread pwrite mkfifo uname statvfs chown
    fchown O_CLOEXEC O_NONBLOCK killpg wait4 sysconf clock_gettime CLOCK_MONOTONIC CLOCK_REALTIME tzset poll
    SIGHUP SIGKILL SIGSTOP SIGCONT SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGQUIT SIGTSTP pthread_sigmask setitimer sigwait
    sigpending SIG_BLOCK SIG_UNBLOCK SIG_SETMASK siginterrupt
"""
UNIX_MODULES = "fcntl grp pwd resource termios tty pty syslog"


def _take_away(names: str) -> None:
    for name in names.split():
        for module in MODULES:
            if hasattr(module, name):
                delattr(module, name)


def _without_proc(opened):  # type: ignore[no-untyped-def]
    """Opens no file of /proc, except for psutil, which has another way to them on each system."""

    def open_(file, *arguments, **keywords):  # type: ignore[no-untyped-def]
        if str(file).startswith("/proc/") and "psutil" not in sys._getframe(1).f_globals.get("__name__", ""):
            raise FileNotFoundError(2, "there is no /proc here", str(file))
        return opened(file, *arguments, **keywords)

    return open_


def _imported_there(execute):  # type: ignore[no-untyped-def]
    """Runs the modules of partbox on the other system, and all others on this one."""

    def exec_module(self: SourceFileLoader, module: ModuleType) -> None:
        before, ours = sys.platform, module.__name__.partition(".")[0] == "partbox"
        sys.platform = PLATFORM if ours else THIS
        try:
            execute(self, module)
        finally:
            sys.platform = before

    return exec_module


THIS = sys.platform
BEFORE = (multiprocess, psutil, tty, webbrowser, sysconfig.get_config_vars())  # they look at the system when imported
asyncio.new_event_loop().close()  # and asyncio when it is first asked for a loop
SourceFileLoader.exec_module = _imported_there(SourceFileLoader.exec_module)  # type: ignore[method-assign]
sys.platform = PLATFORM
io.open = builtins.open = _without_proc(io.open)
_take_away(LINUX_ALONE)
if PLATFORM == "win32":
    _take_away(UNIX_ALONE)
    for name in UNIX_MODULES.split():
        sys.modules[name] = None  # type: ignore[assignment]
