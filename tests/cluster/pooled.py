"""PgBouncer in transaction mode, as Debian has it, on a free port of the loopback; and publishers that outlive it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
import pytest
from ledger import Ledger, Publisher
from waiting import eventually

from partbox_lab import pgbouncer

needed = pytest.mark.skipif(pgbouncer.PROGRAM is None, reason="no PgBouncer on this machine: apt-get install pgbouncer")


class PgBouncer(pgbouncer.PgBouncer):
    """One that answers when it has been started."""

    def start(self) -> None:
        super().start()
        eventually(self._answers)

    def _answers(self) -> bool:
        assert not self.has_ended, self.log
        with suppress(psycopg.OperationalError), psycopg.connect(self.dsn(), prepare_threshold=None):
            return True
        return False


class PatientPublisher(Publisher):
    """Connects again when its connection breaks; whether the transaction of that moment was committed the log knows."""

    def run(self) -> None:
        super().run()
        while isinstance(self.error, psycopg.OperationalError) and not self.stopping.wait(0.05):
            self.error = None
            super().run()
        if isinstance(self.error, psycopg.OperationalError):
            self.error = None


@contextmanager
def publishing_patiently(ledger: Ledger, threads: int = 2) -> Iterator[None]:
    """Publishers at work as long as this lasts."""
    publishers = [PatientPublisher(ledger, seed) for seed in range(threads)]
    for publisher in publishers:
        publisher.start()
    try:
        yield
    finally:
        for publisher in publishers:
            publisher.stopping.set()
        for publisher in publishers:
            publisher.join()
    errors = [publisher.error for publisher in publishers if publisher.error]
    assert not errors, errors
