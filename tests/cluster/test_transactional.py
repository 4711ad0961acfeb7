"""Exactly once: counters in the same database by transactional handlers, whatever happens to their processes."""

import os
import random
import signal
import threading
from contextlib import contextmanager

import psutil
import psycopg
import pytest
from clusters import FAST
from node import Node
from waiting import eventually

FAILING = 0.01
LATE = 0.1


class Tally:
    """A cluster of `tally_app`: counters by aggregate, and the trace of what was handled."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.ledger = cluster.ledger
        self.conn = cluster.owners.conn
        self.conn.execute("create table tally (aggregate text primary key, total int not null default 0)")
        self.conn.execute("insert into tally (aggregate) select aggregate from partbox.chaos_account")
        self.conn.execute("create table trace (id bigserial, aggregate text, seq int, counted boolean)")

    def node(self, name="node", processes=3, concurrency=2, **settings):
        flags = ["--processes", str(processes), "--concurrency", str(concurrency)]
        given = FAST | {"dsn": self.cluster.dsn, "retry": "fixed:0.05"} | settings
        folder, journal = self.cluster.folder, self.cluster.journal.folder
        node = Node(name, folder, journal, flags, given, application="tally_app:outbox", spare=2 * processes + 4)
        self.cluster.nodes.append(node)
        return node

    def counted(self):
        return self.conn.execute("select count(*) from trace where counted").fetchone()[0]

    def processes(self):
        """The pids of the worker processes, of whom there is one at least."""
        return eventually(lambda: [pid for pid in self.cluster.owners.instances().values() if psutil.pid_exists(pid)])

    def settled(self, timeout=120):
        eventually(self.cluster.owners.consumed, timeout, 0.1)

    def judge(self):
        """The counters are exact, nothing is counted twice, and each aggregate's events came in their order."""
        published = self.conn.execute(
            """select aggregate_id, array_agg((payload ->> 'seq')::int order by id) filter (where event_type = 'Count')
                 from partbox.record group by 1"""
        ).fetchall()
        totals = dict(self.conn.execute("select aggregate, total from tally where total > 0").fetchall())
        assert totals == {aggregate: len(seqs) for aggregate, seqs in published if seqs}
        counted = self.conn.execute(
            "select aggregate, array_agg(seq order by id) from trace where counted group by 1"
        ).fetchall()
        assert dict(counted) == {aggregate: seqs for aggregate, seqs in published if seqs}
        firsts = self.conn.execute(
            """select aggregate, array_agg(seq order by id)
                 from (select aggregate, seq, min(id) as id from trace group by 1, 2) first group by 1"""
        ).fetchall()
        for aggregate, seqs in firsts:
            assert seqs == list(range(1, len(seqs) + 1)), aggregate

    def steps_repeated(self):
        return self.conn.execute(
            "select count(*) - count(distinct (aggregate, seq)) from trace where not counted"
        ).fetchone()[0]


class Writer(threading.Thread):
    """Publishes so many Counts and some Steps; now and then some that fail, a late commit, a rollback."""

    def __init__(self, tally, seed, counts, **payload):
        super().__init__(daemon=True)
        self.ledger, self.random, self.left, self.payload = tally.ledger, random.Random(seed), counts, payload
        self.error = None

    def run(self):
        try:
            with psycopg.connect(self.ledger.dsn, autocommit=True) as conn:
                conn.execute("set synchronous_commit = off")
                while self.left:
                    self.left -= self.publish(conn)
        except Exception as error:
            self.error = error

    def publish(self, conn):
        """One transaction; how many Counts it has published."""
        names = sorted(self.random.sample(self.ledger.names, min(self.left, self.random.randint(1, 12))))
        fails = self.random.randint(1, 3) if self.random.random() < FAILING else 0
        doomed = self.random.random() < LATE
        with conn.transaction():
            conn.execute(
                "select from partbox.chaos_account where aggregate = any (%s) order by aggregate for update", [names]
            )
            for chosen, event_type in ((self.random.sample(names, 1), "Step"), (names, "Count")):
                self.ledger.publish(conn, chosen, event_type=event_type, fails=fails, **self.payload)
            if self.random.random() < LATE:
                conn.execute("select pg_sleep(%s)", [self.random.random() / 10])
            if doomed:
                raise psycopg.Rollback
        return 0 if doomed else len(names)


@pytest.fixture
def tally(cluster):
    return Tally(cluster)


@contextmanager
def writing(tally, counts, threads=3, **payload):
    """Writers at work, `counts` Counts among them; waits for them at the end."""
    writers = [Writer(tally, seed, counts // threads, **payload) for seed in range(threads)]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        for writer in writers:
            writer.join()
    assert not [writer.error for writer in writers if writer.error]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kills", "counts", "processes"), [(2, 400, 1), pytest.param(20, 20_000, 3, marks=pytest.mark.soak)]
)
def test_kills_leave_the_counters_exact(tally, kills, counts, processes):
    """Publish this many events that count, and a fifth of that that do not, on two nodes."""
    seed = int(os.environ.get("PARTBOX_TEST_SEED", random.randrange(1_000_000)))
    print(f"PARTBOX_TEST_SEED={seed}")  # noqa: T201 - to be repeated with
    chance = random.Random(seed)
    nodes = [tally.node(name, processes) for name in ("one", "two")]
    tally.cluster.balanced(2 * processes)
    with writing(tally, counts, threads=4):
        for at in sorted(chance.sample(range(counts // 20, counts * 9 // 10), kills)):
            eventually(lambda at=at: tally.counted() >= at, 120, 0.005)
            os.kill(chance.choice(tally.processes()), signal.SIGKILL)
    tally.settled()
    assert tally.counted() == counts
    tally.judge()
    for node in nodes:
        assert node.stop() == 0


@pytest.mark.thorough
@pytest.mark.parametrize(("counts", "processes"), [(450, 1), pytest.param(6_000, 2, marks=pytest.mark.soak)])
def test_restarts_count_nothing_twice(tally, counts, processes):
    """Nodes come and go gracefully while transactions run."""
    tally.node("zero", processes)
    tally.cluster.balanced(processes)
    with writing(tally, counts):
        for number in range(3):
            eventually(lambda at=counts // 4 * (number + 1): tally.counted() >= at, 120, 0.02)
            tally.node(f"node-{number}", processes)
            eventually(lambda number=number: tally.cluster.owners.instances(f"node-{number}"), interval=0.05)
            assert tally.cluster.nodes[-2].stop() == 0
    tally.settled()
    assert tally.counted() == counts
    tally.judge()
    assert tally.steps_repeated() == 0
    assert tally.cluster.nodes[-1].stop() == 0
