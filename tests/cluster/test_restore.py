"""A dump of an outbox at work, restored into another cluster, whose transaction ids begin anew.

Workers refuse; `partbox rebase` adopts it; then every subscription gets what it had not got when the dump was made, and
what was published since, once and in order. What it had not got is read from the cursors of the copy, before.
"""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
from copying import Consumer, consumed, consuming, dump, left, moved, restore
from ledger import Ledger, publishing
from node import PATIENCE
from planted_records import PARK
from psycopg.conninfo import make_conninfo
from servers import bare_server, execute
from waiting import eventually

from partbox import Outbox, partition_of
from partbox.db.connect import check_server
from partbox.errors import PartboxError, SchemaError


def _beside(name: str) -> str:
    """An aggregate of the same partition."""
    return next(each for each in map("late-{}".format, count()) if partition_of(each) == partition_of(name))


LATE = [_beside(f"account-{number}") for number in range(12)]
"""Aggregates that share a partition with one that publishes later ids, so that cursors pass theirs."""

QUIET = [f"quiet-{number}" for number in range(7)]
"""Aggregates whose events are parked: a delayed one may come after others of its aggregate, so there are none."""

pytestmark = pytest.mark.every_version("dumps, oids and transaction ids")

STATES = ("retrying", "deferred", "scheduled", "held", "dead", "ready")


@pytest.fixture
def ledger(dsn: str) -> Ledger:
    """Aggregates that publish all the time, and some more."""
    ledger = Ledger(dsn, aggregates=60)
    with psycopg.connect(dsn) as conn:
        ledger.accounts.open(conn, LATE + QUIET)
    return ledger


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """The DSN of an empty database in a cluster that has just been made."""
    with bare_server() as server:
        execute(server.dsn, "create database {}", "shop")
        yield make_conninfo(server.dsn, dbname="shop")


@pytest.fixture
def consumer(tmp_path: Path) -> Iterator[Callable[[str, str], Consumer]]:
    with consuming(tmp_path) as new:
        yield new


@pytest.mark.thorough
def test_delivery_goes_on_in_another_cluster_from_a_dump_of_a_busy_outbox(
    dsn, conn, ledger, consumer, elsewhere, tmp_path
):
    file = tmp_path / "shop.dump"
    _dumped_at_work(dsn, conn, ledger, consumer, file)
    restore(elsewhere, file)
    with psycopg.connect(elsewhere, autocommit=True) as copy:
        expected = {name: left(copy, name) for name in ("default", "audit")}
        late = _events(copy, LATE)
        assert late <= expected["audit"]
        assert not late & expected["default"]
        there = moved(ledger, elsewhere)
        early = set(there.publish_now([*LATE, *ledger.names[:10]], burst=3))
        refused = consumer("default", elsewhere)
        assert refused.start().wait() == 1
        assert "partbox rebase" in refused.nodes[0].log
        assert "logical copy" in refused.nodes[0].log

        charged = copy.execute("select * from partbox.parked order by subscription, record_id").fetchall()
        done = Outbox(elsewhere).rebase()
        parked = {each.subscription: each.parked for each in done.subscriptions}
        assert parked["audit"] >= len(late)
        assert set(charged) <= set(copy.execute("select * from partbox.parked").fetchall())
        with pytest.raises(PartboxError, match="is healthy"):
            Outbox(elsewhere).rebase()

        since = set(there.publish_now([*LATE, *ledger.names[:10]], burst=2))
        consumers = [consumer(name, elsewhere) for name in expected]
        for each in consumers:
            each.start(2)
        for each in consumers:
            eventually(lambda each=each: consumed(copy, each.name), PATIENCE, 0.1)
            assert each.nodes[0].stop() == 0
        published = there.published()
        for each in consumers:
            wanted = expected[each.name] | early | since
            assert each.got() == sorted(wanted)
            assert each.verdict(one for one in published if one.event in wanted).wrong() == {}


def test_a_copy_whose_marker_has_the_right_transaction_id_by_chance_is_refused_too(dsn, conn, elsewhere, tmp_path):
    """It is restored in one transaction, where ids have come just as far as they were when the marker was written."""
    file = tmp_path / "shop.dump"
    order = "select 'partbox.meta'::regclass::oid > 'partbox.record_pkey'::regclass::oid"
    with psycopg.connect(elsewhere, autocommit=True) as copy:
        copy.execute("alter system set autovacuum = off")  # it draws transaction ids, too
        copy.execute("select pg_reload_conf()")
        _advance(conn, _next(copy) + 100)
        Outbox(dsn).rebase(force=True)
        Outbox(dsn).subscriptions.create("audit")
        (xid,) = conn.execute("select xid::text::bigint from partbox.meta where key = 'marker'").fetchone()
        dump(dsn, file)
        _advance(copy, xid)
        restore(elsewhere, file, "--single-transaction")
        marker = "select xmin = xid::xid from partbox.meta where key = 'marker'"
        assert copy.execute(marker).fetchone() == conn.execute(marker).fetchone() == (True,)
        assert (conn.execute(order).fetchone(), copy.execute(order).fetchone()) == ((True,), (False,))
        check_server(conn, "partbox")
        with pytest.raises(SchemaError, match="is a logical copy"):
            check_server(copy, "partbox")
        Outbox(elsewhere).rebase()
        check_server(copy, "partbox")


def _next(conn: psycopg.Connection) -> int:
    (xid,) = conn.execute("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone()
    return xid


def _advance(conn: psycopg.Connection, xid: int) -> None:
    """Use up transaction ids, so that this one is the next; one that is higher already stays."""
    conn.execute(
        f"do $$ begin while pg_snapshot_xmax(pg_current_snapshot())::text::bigint < {xid} loop"
        " perform pg_current_xact_id(); commit; end loop; end $$"
    )


def _dumped_at_work(dsn, conn, ledger, consumer, file: Path) -> None:
    """Dump while one subscription is delivered and another lies behind; with late commits, and a transaction open."""
    outbox = Outbox(dsn)
    outbox.subscriptions.create("audit")
    default, audit = consumer("default", dsn), consumer("audit", dsn)
    with psycopg.connect(dsn) as slow, psycopg.connect(dsn) as open_still:
        late = ledger.publish(slow, LATE, 2)
        ledger.publish_now(ledger.names + QUIET, burst=3)
        node = audit.start()
        eventually(lambda: consumed(conn, "audit"), PATIENCE, 0.05)
        assert node.stop() == 0
        slow.commit()
        default.start(2)
        with publishing(ledger):
            eventually(lambda: not set(late) & left(conn, default.name), PATIENCE, 0.05)  # delivered, and saved
            conn.execute("insert into partbox.chaos_account (aggregate) values ('never')")
            ledger.publish(open_still, ["never"])
            _plant(conn)
            dump(dsn, file)
        open_still.commit()
    assert default.nodes[0].stop() == 0


def _plant(conn: psycopg.Connection) -> None:
    """Rows of every state in audit, which nobody works on, one of them charged."""
    query = (
        "select distinct on (aggregate_id) event_id from partbox.record where aggregate_id = any (%s)"
        " order by aggregate_id, id"
    )
    events = [event for (event,) in conn.execute(query, [QUIET])]
    for number, (event, state) in enumerate(zip(events, (*STATES, "ready"), strict=True)):
        values = {
            "subscription": "audit",
            "state": state,
            "blocks": state not in ("scheduled", "dead"),
            "attempts": number,
            "due": -1 if state in ("retrying", "deferred", "scheduled") else None,
            "age": 60,
            "started": number == len(STATES),
            "error": "ValueError: boom",
            "event_id": event,
        }
        conn.execute(PARK, values)


def _events(conn: psycopg.Connection, aggregates: list[str]) -> set[str]:
    found = "select event_id::text from partbox.record where aggregate_id = any (%s)"
    return {event for (event,) in conn.execute(found, [aggregates])}
