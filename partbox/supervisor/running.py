"""Runs supervisors in the foreground: signals, `--until-empty`, the exit code."""

import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from psycopg import Error

from partbox.observe.telling import tell
from partbox.supervisor.flag import Flag
from partbox.supervisor.supervisor import Supervisor

log = logging.getLogger("partbox.supervisor")

LOOK = 0.2
EMPTY_LOOKS = 2


def run(supervisors: Sequence[Supervisor], *, until_empty: bool = False) -> int:
    """Start them and block until they end: by SIGTERM or SIGINT (twice: at once), or when everything is delivered.

    0, or 1 when one of them failed. Raises what `Supervisor.start` raises; then none is left running.
    """
    with _signals(supervisors) as signalled:
        started = []
        try:
            for supervisor in supervisors:
                supervisor.start()
                started.append(supervisor)
            _wait(supervisors, until_empty, signalled)
        except BaseException:
            for supervisor in started:
                supervisor.stop()
            raise
        finally:
            for supervisor in started:
                while not supervisor.gone:
                    supervisor.join(LOOK)
    return 1 if any(supervisor.failure for supervisor in supervisors) else 0


def _wait(supervisors: Sequence[Supervisor], until_empty: bool, signalled: Flag) -> None:
    empty = 0
    while not all(supervisor.gone for supervisor in supervisors):
        if signalled.wait(LOOK):
            return
        if any(supervisor.failure for supervisor in supervisors):
            for supervisor in supervisors:
                supervisor.stop()
        elif until_empty:
            empty = empty + 1 if _all_empty(supervisors) else 0
            if empty >= EMPTY_LOOKS:
                tell(log, "all_delivered", "everything that is due is delivered")
                for supervisor in supervisors:
                    supervisor.stop()
                return


def _all_empty(supervisors: Sequence[Supervisor]) -> bool:
    try:
        return all(supervisor.empty() for supervisor in supervisors)
    except Error as error:
        tell(log, "loop_error", "cannot tell whether everything is delivered: %s", error, loop="until-empty")
        return False


@contextmanager
def _signals(supervisors: Sequence[Supervisor]) -> Iterator[Flag]:
    """SIGTERM and SIGINT stop softly, a second one at once. Outside the main thread there are none to handle."""
    signalled = Flag()

    def handle(number: int, _: FrameType | None) -> None:
        for supervisor in supervisors:
            if signalled.is_set():
                supervisor.kill()
            else:
                supervisor.stop()
        signalled.set()

    if threading.current_thread() is not threading.main_thread():
        yield signalled
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield signalled
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
