"""Runs nodes in the foreground: signals, notices to a service manager, `--until-empty`, the exit code.

Of several databases those that can be worked for at the start are. If that is none of them it is an error, as it is
with one alone: nothing would be done, and the user sees at once that the DSNs are wrong.
"""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from partbox.errors import PartboxError
from partbox.supervisor.signals import SignalFlag, hangup_is_ignored
from partbox.supervisor.supervisor import Supervisor
from partbox.supervisor.systemd import SystemdService, run_as_service
from partbox.supervisor.until_empty import UntilEmpty

CHECK_INTERVAL = 0.2


def run(supervisors: Sequence[Supervisor], *, until_empty: bool = False) -> int:
    """Start them and block until they end: by SIGTERM or SIGINT (twice: at once), SIGHUP, or when all is delivered.

    0, or 1 when one of them failed, or when `until_empty` ends with events that are not delivered.
    Raises what `Supervisor.start` raises, and PartboxError if none of several databases can be worked for; then none is
    left running.
    """
    done = True
    with _handle_signals(supervisors) as signalled, run_as_service(supervisors) as systemd:
        systemd.notify()
        started = []
        try:
            for supervisor in supervisors:
                supervisor.start()
                started.append(supervisor)
            done = _wait_for_end(supervisors, until_empty, signalled, systemd)
        except BaseException:
            _stop(started)
            raise
        finally:
            for supervisor in started:
                while not supervisor.is_gone:
                    systemd.notify()
                    supervisor.join(CHECK_INTERVAL)
    return 1 if not done or any(supervisor.failure for supervisor in supervisors) else 0


def _wait_for_end(
    supervisors: Sequence[Supervisor], until_empty: bool, signalled: SignalFlag, systemd: SystemdService
) -> bool:
    """Wait until they end, or are told to; True if everything that was asked for is done."""
    emptying = UntilEmpty(supervisors)
    while not all(supervisor.is_gone for supervisor in supervisors):
        systemd.notify()
        if signalled.wait(CHECK_INTERVAL):
            return True
        if any(supervisor.failure for supervisor in supervisors):
            _stop(supervisors)
        elif all(supervisor.join_error for supervisor in supervisors):
            why = "; ".join(f"{each.database}: {' '.join(str(each.join_error).split())}" for each in supervisors)
            raise PartboxError(f"none of the {len(supervisors)} databases can be worked for, check each --dsn: {why}")
        elif until_empty and emptying.is_over():
            done = emptying.log_left_over()
            _stop(supervisors)
            return done
    return True


def _stop(supervisors: Sequence[Supervisor]) -> None:
    for supervisor in supervisors:
        supervisor.stop()


@contextmanager
def _handle_signals(supervisors: Sequence[Supervisor]) -> Iterator[SignalFlag]:
    """SIGTERM and SIGINT stop softly, a second one at once; so does SIGHUP, but always softly: a terminal that closes
    sends it twice. Outside the main thread there are none to handle."""
    signalled = SignalFlag()
    received: set[int] = set()

    def handle(number: int, _: FrameType | None) -> None:
        for supervisor in supervisors:
            if received and number != signal.SIGHUP:
                supervisor.kill()
            else:
                supervisor.stop()
        received.update({number} - {signal.SIGHUP})
        signalled.set()

    if threading.current_thread() is not threading.main_thread():
        yield signalled
        return
    handlers: dict[int, Any] = {signal.SIGTERM: handle, signal.SIGINT: handle}
    if not hangup_is_ignored():
        handlers[signal.SIGHUP] = handle
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # then nobody hears how a process has ended
        handlers[signal.SIGCHLD] = signal.SIG_DFL
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)  # who started this process may have blocked them
    try:
        yield signalled
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
