"""Kill -9 at each statement of a transaction of handlers that write by an ORM: effects are as many as events."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from forked_commands import Forks
from waiting import eventually

from partbox import Event, Outbox
from partbox.db.delivery import instances

APP = Path(__file__).parent / "killed_orm_app.py"
KINDS = ["sqlalchemy", "async sqlalchemy", "sqlmodel", "django", "async psycopg"]
KEYS = [f"k{number}" for number in range(10)]
A_TRANSACTION = 25  # statements: all of one, with three events, and the first of the next
COMMIT = {"async psycopg": 13}  # its number in a transaction of three events; 19 by an ORM
TABLES = """
create table tally (aggregate text primary key, total int not null default 0);
create table trace (id bigint generated always as identity primary key, aggregate text, seq int);
insert into tally select 'k' || n from generate_series(0, 9) n
"""


class Killed:
    """Worker processes, one after the other, each of which dies at a statement of its own."""

    def __init__(self, dsn: str, folder: Path, kind: str, forks: Forks) -> None:
        self._forks = forks
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.conn.execute(TABLES)
        self._dsn, self._folder, self._kind = dsn, folder, kind
        self.kills = 0

    def publish(self, events: int) -> None:
        outbox = Outbox(self._dsn)
        for first in range(0, events, 1_000):
            numbers = range(first, min(events, first + 1_000))
            with self.conn.transaction():
                outbox.publish_many(self.conn, [self._event(number) for number in numbers])

    @staticmethod
    def _event(number: int) -> Event:
        payload = {"seq": number // len(KEYS), "fails": 1 if number % 37 == 5 else 0}
        return Event("Count", payload, aggregate_type="Key", aggregate_id=KEYS[number % len(KEYS)])

    def run(self, points: list[str]) -> None:
        """Have a process die at each of these points, and the last one work until all is done."""
        for point in points:
            (self._folder / point).touch()
            with self._process() as process:
                eventually(lambda process=process: process.poll() is not None or self.done(), moves=self.traced)
                assert process.poll() == -signal.SIGKILL, f"it did not come to {point}"
            self.kills += 1
        with self._process():
            eventually(self.done, moves=self.traced)

    @contextmanager
    def _process(self) -> Iterator[Any]:
        command = ["python", str(APP), self._kind, str(self._folder)]
        process = self._forks.start(*command, env={**os.environ, "PARTBOX_DSN": self._dsn})
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()
            self._bury()

    def _bury(self) -> None:
        """As a supervisor buries its own dead child, and at once."""
        dead = [each for (each,) in self.conn.execute("select instance_id from partbox.instance").fetchall()]
        if dead:
            instances.bury_instances(self.conn, "partbox", dead, known_dead=True)

    def traced(self) -> int:
        return int(self.conn.execute("select count(*) from trace").fetchone()[0])  # type: ignore[index]

    def done(self) -> bool:
        return self.conn.execute("select from partbox.record_status where status <> 'done' limit 1").fetchone() is None

    def judge(self, events: int) -> None:
        traced = self.conn.execute("select aggregate, array_agg(seq order by id) from trace group by 1").fetchall()
        assert dict(traced) == {key: [*range(events // len(KEYS))] for key in KEYS}
        totals = self.conn.execute("select aggregate, total from tally").fetchall()
        assert dict(totals) == dict.fromkeys(KEYS, events // len(KEYS))


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks("django.db.backends.postgresql.base", "sqlalchemy.ext.asyncio", "sqlmodel")
    yield made
    made.close()


@pytest.fixture
def killed(dsn: str, tmp_path: Path, kind: str, forks: Forks) -> Iterator[Killed]:
    made = Killed(dsn, tmp_path, kind, forks)
    yield made
    made.conn.close()


def points(every: int) -> list[str]:
    return [f"{when}-{number}" for number in range(1, A_TRANSACTION + 1, every) for when in ("before", "after")]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_a_statement_loses_and_repeats_no_effect(killed: Killed, kind: str) -> None:
    """Before and after the COMMIT, and after the save."""
    commit = COMMIT.get(kind, 19)
    killed.publish(100)
    killed.run([f"after-{commit - 1}", f"before-{commit}", f"after-{commit}"])
    killed.judge(100)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kind", KINDS)
def test_kills_at_every_statement_lose_and_repeat_no_effect(killed: Killed) -> None:
    killed.publish(10_000)
    killed.run(points(1))
    assert killed.kills == 2 * A_TRANSACTION
    killed.judge(10_000)
