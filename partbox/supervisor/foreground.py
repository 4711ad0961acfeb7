"""The foreground of a command: signals, notifications to a service manager, `--until-empty`, and the exit status."""

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

CHECK_INTERVAL = 0.2  # seconds


def run_supervisors(supervisors: Sequence[Supervisor], *, until_empty: bool = False) -> int:
    """Run supervisors until a signal stops them or all events are delivered. Return the exit status, 0 or 1."""
    # With several databases, all that are usable at the start are worked for. If there is none, that is an error, as it
    # is for a single database: nothing would be done, and the user sees at once that the DSNs are wrong.
    # A second signal ends them at once. The status is 1 if a supervisor failed or `until_empty` ends with undelivered
    # events. Errors of `Supervisor.start` are raised, or `PartboxError` if none of several databases is usable; none is
    # left running then.
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
            _stop_all(started)
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
    # The wait ends when the supervisors end, a signal arrives, or all events are delivered.
    # Returns False if `until_empty` ends with undelivered events.
    emptying = UntilEmpty(supervisors)
    while not all(supervisor.is_gone for supervisor in supervisors):
        systemd.notify()
        if signalled.wait(CHECK_INTERVAL):
            return True
        if any(supervisor.failure for supervisor in supervisors):
            _stop_all(supervisors)
        elif all(supervisor.join_error for supervisor in supervisors):
            why = "; ".join(f"{each.database}: {' '.join(str(each.join_error).split())}" for each in supervisors)
            raise PartboxError(f"none of the {len(supervisors)} databases can be used, check each --dsn: {why}")
        elif until_empty and emptying.is_over():
            done = emptying.log_left_over()
            _stop_all(supervisors)
            return done
    return True


def _stop_all(supervisors: Sequence[Supervisor]) -> None:
    for supervisor in supervisors:
        supervisor.stop()


@contextmanager
def _handle_signals(supervisors: Sequence[Supervisor]) -> Iterator[SignalFlag]:
    # Signals stop the supervisors, softly at first and at once the second time.
    # The signals are SIGTERM and SIGINT. SIGHUP always stops softly, as a closing terminal sends it twice. Nothing is
    # done outside the main thread.
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
    # If SIGCHLD is ignored, the exit codes of processes are lost.
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        handlers[signal.SIGCHLD] = signal.SIG_DFL
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    # The parent of this process may have blocked the signals.
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)
    try:
        yield signalled
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
