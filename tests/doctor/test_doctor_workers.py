"""Workers that are not as they should be, each provoked in a real database: named, and a remedy that is SQL ends it."""

import re
import time

import psycopg
import pytest

from partbox.db.delivery import instances
from partbox.db.delivery.instances import LifespanState
from partbox.doctor.doctor import SECOND_LOOK_AFTER, examine_outbox
from partbox.doctor.limits import Limits
from partbox.settings import load

pytestmark = pytest.mark.usefixtures("brisk")


def test_a_process_without_a_heartbeat_beside_a_living_one_is_a_finding(clinic):
    clinic.ghost("node-a")
    clinic.ghost("node-b", lease="1 s")
    clinic.conn.execute("update partbox.instance set heartbeat_at = now() - interval '2 s' where node = 'node-b'")
    found = clinic.one("expired-process")
    assert found["severity"] == "warning"
    assert found["summary"] == "1 process without a heartbeat for longer than the lease"
    assert "process 4711 on node-b, heartbeat " in found["evidence"][0]
    clinic.conn.execute(
        "update partbox.partition p set owner = instance_id, assignee = instance_id from partbox.instance"
        " where node = 'node-b';"
        "update partbox.instance set heartbeat_at = now() - interval '1 min' where node = 'node-b'"
    )
    assert clinic.one("expired-process")["severity"] == "problem"  # nobody buries it


@pytest.mark.every_version("asks the server's own tables")
def test_a_partition_without_an_assignee_is_a_finding(clinic):
    clinic.ghost()
    clinic.conn.execute(
        "update partbox.partition p set owner = instance_id, assignee = instance_id from partbox.instance"
    )
    anew = "their assignee is gone, and no node has reassigned them"
    for assignee, owner, said in (
        ("null", "null", "no node has assigned them"),
        ("gen_random_uuid()", "null", anew),
        ("gen_random_uuid()", "gen_random_uuid()", anew),
    ):
        clinic.conn.execute(
            f"update partbox.partition set assignee = {assignee}, owner = {owner} where partition = 9".encode()
        )
        found = clinic.one("unowned")
        assert found["evidence"][0] == f"1 partition (9): {said}", (assignee, owner)
        assert "look at the log of `partbox worker` on node-ghost" in found["remedy"][0]


def test_a_handover_between_two_examinations_is_not_taken_for_an_unowned_partition(clinic):
    clinic.ghost()
    waited = []

    def claim(seconds: float) -> None:
        waited.append(seconds)
        clinic.conn.execute(
            "update partbox.partition p set owner = instance_id, epoch = epoch + 1 from partbox.instance"
        )

    settings = load()
    assert examine_outbox(lambda: clinic.dsn, settings, Limits(), wait=claim).healthy
    assert (waited, SECOND_LOOK_AFTER) == ([0.0], 3.0)  # without `brisk`: a handover takes less than a second
    clinic.conn.execute("update partbox.partition set owner = null")
    assert not examine_outbox(lambda: clinic.dsn, settings, Limits(), wait=lambda seconds: None).healthy


def test_a_partition_that_moved_twice_between_two_examinations_is_not_taken_for_unowned(clinic):
    clinic.ghost()
    moved = "update partbox.partition set epoch = epoch + 1"
    looked = examine_outbox(
        lambda: clinic.dsn, load(), Limits(), wait=lambda seconds: clinic.conn.execute(moved.encode())
    )
    assert looked.healthy


def test_a_subscription_that_nobody_works_on_can_be_dropped(clinic):
    clinic.ghost()
    clinic.conn.execute("update partbox.partition p set owner = instance_id from partbox.instance")
    clinic.run("subscription", "create", "audit log")
    clinic.plant.publish("7")
    clinic.plant.consume()
    clinic.conn.execute("update partbox.partition set last_id = 0, floor_id = 0, snapshot = '1:1:' where owner is null")
    found = clinic.one("no-workers")
    assert found["subscription"] == "audit log"
    assert "`partbox worker MODULE:OUTBOX --subscription 'audit log'`" in found["remedy"][0]
    clinic.follow(f"{found['remedy'][1][:-1]} --yes`")
    assert clinic.findings() == []


def test_for_a_node_whose_processes_cannot_begin_the_remedy_is_its_log_and_not_another_node(clinic):
    """Fault: a process registers when it has begun, so one that cannot is in no table."""
    clinic.plant.publish("7")
    assert clinic.one("no-workers")["remedy"] == ["start workers: `partbox worker MODULE:OUTBOX`"]
    with psycopg.connect(clinic.dsn, application_name="partbox supervisor"):
        found = clinic.one("no-workers")
    assert found["summary"] == "a node runs, and none of its processes has begun to work; records wait"
    assert "1 session of nodes in this database" in found["evidence"][1]
    assert "look at the log of `partbox worker`" in found["remedy"][0]


def test_a_process_that_waits_in_its_lifespan_is_a_finding(clinic):
    entering = LifespanState("shop.lifespan (shop.py:7)", 40.0)
    where = {"node": "node-a", "hostname": "node-a", "pids": [4711], "version": "0.1.0", "lease": 3600.0}
    rows = instances.register_instances(clinic.conn, "partbox", subscription="default", **where)
    instances.note_lifespan(clinic.conn, "partbox", rows[4711], entering)
    found = clinic.one("lifespan")
    assert found["severity"] == "warning"
    assert found["summary"] == "1 process in the lifespan shop.lifespan (shop.py:7), not at work yet"
    clinic.plant.publish("7")
    found = clinic.one("lifespan")
    assert found["severity"] == "problem"
    assert found["summary"].endswith("no other process works, and records wait")
    assert found["evidence"][1] == "process 4711 on node-a, for 40 s"
    clinic.ghost()
    assert clinic.one("lifespan")["severity"] == "warning"


STANDS = (
    "update partbox.partition p set owner = instance_id, claimed_at = now() - interval '1 h',"
    " saved_at = now() - interval '10 min' from partbox.instance"
)


def test_a_partition_without_progress_is_a_finding(clinic):
    clinic.ghost()
    clinic.conn.execute(STANDS)
    assert clinic.findings() == []
    clinic.plant.publish("7")
    assert clinic.findings() == []
    clinic.conn.execute("update partbox.record set created_at = now() - interval '5 min'")
    found = clinic.one("stalled")
    assert found["severity"] == "problem"
    assert "1 record pending, the oldest published 5 m ago, no progress for 10 m" in found["evidence"][0]
    assert "owned by process 4711 on node-ghost" in found["evidence"][1]
    assert "`py-spy dump --pid 4711` on node-ghost" in found["remedy"][0]
    clinic.conn.execute("update partbox.partition set saved_at = now()")
    assert clinic.findings() == []


IDLES = """
update partbox.partition p set owner = instance_id, claimed_at = now() - interval '1 h',
       saved_at = now() - %s * interval '1 s' from partbox.instance
"""


@pytest.mark.parametrize(("seconds", "causes"), [(15, []), (60, ["stalled"])])
def test_an_owner_that_neither_reads_nor_saves_is_reported_within_a_minute(clinic, seconds, causes):
    clinic.ghost(lease="12 s")
    clinic.conn.execute(IDLES, [seconds])
    clinic.plant.publish("7")
    clinic.conn.execute("update partbox.record set created_at = now() - interval '2 min'")
    assert clinic.causes() == causes


def test_an_owner_that_saves_other_partitions_is_not_reported_as_idle(clinic):
    clinic.ghost(lease="12 s")
    clinic.conn.execute(IDLES, [60])
    clinic.plant.publish("7")
    clinic.old(1)
    clinic.conn.execute("update partbox.record set created_at = now() - interval '2 min'")
    clinic.conn.execute("update partbox.partition set saved_at = now() where partition = 1")
    assert clinic.causes() == []


def test_a_stalled_partition_whose_process_works_on_others_is_a_warning(clinic):
    clinic.ghost()
    clinic.conn.execute(STANDS)
    clinic.old(2)  # of two partitions
    assert clinic.one("stalled")["severity"] == "problem"
    clinic.conn.execute("update partbox.partition set saved_at = now() where partition = 1")
    found = clinic.one("stalled")
    assert (found["severity"], found["summary"]) == (
        "warning",
        "1 partition without progress while their process works on other partitions",
    )


def test_a_record_that_has_just_become_visible_is_not_taken_for_a_stalled_partition(clinic):
    clinic.ghost()
    clinic.conn.execute(STANDS)
    clinic.old(1)

    def delivered(seconds: float) -> None:
        clinic.conn.execute("update partbox.partition set last_id = 1, saved_at = now() where partition = 1")
        clinic.conn.execute(OLD_AGAIN)

    causes = {each.cause for each in examine_outbox(lambda: clinic.dsn, load(), Limits(), wait=delivered).findings}
    assert "stalled" not in causes


OLD_AGAIN = (
    "insert into partbox.record (partition, event_id, event_type, created_at)"
    " values (1, gen_random_uuid(), 'Placed', now() - interval '9 days')"
)


def test_a_braked_partition_is_not_also_reported_as_stalled(clinic, monkeypatch):
    monkeypatch.setenv("PARTBOX_MAX_PARKED", "1")
    clinic.ghost()
    clinic.conn.execute(STANDS)
    clinic.plant.park("7", "retrying", blocks=True, attempts=1, due=3_600, age=1)
    clinic.plant.publish("7")
    clinic.conn.execute("update partbox.record set created_at = now() - interval '5 min'")
    assert clinic.causes() == ["braked"]


RUNNING = """
update partbox.instance set running = (
    select json_agg(jsonb_build_object('handler', 'ship', 'event_type', 'Placed', 'aggregate_type', 'Order',
                                       'aggregate_id', id, 'record_id', 17, 'partition', 3,
                                       'timeout', %(timeout)s::float8,
                                       'since', extract(epoch from now())::float8 - %(seconds)s::float8))
      from unnest(%(ids)s::text[]) as id)
"""


@pytest.mark.parametrize(
    ("seconds", "timeout", "hangs"),
    [(50, None, False), (600, None, True), (600, 900.0, False), (905, 900.0, False), (950, 900.0, True)],
)
def test_a_handler_hangs_if_no_timeout_will_end_it(clinic, seconds, timeout, hangs):
    clinic.ghost()
    clinic.conn.execute("update partbox.partition p set owner = instance_id from partbox.instance")
    clinic.conn.execute(RUNNING, {"seconds": seconds, "timeout": timeout, "ids": ["7"]})
    assert clinic.causes() == (["hanging-handler"] if hangs else [])


def test_a_partition_that_waits_for_a_reported_handler_is_not_also_reported_as_stalled(clinic):
    clinic.ghost()
    clinic.conn.execute(STANDS)
    clinic.old(1)
    clinic.conn.execute(RUNNING, {"seconds": 30, "timeout": 900.0, "ids": ["7"]})
    assert "stalled" not in clinic.causes()


def test_handlers_that_hang_are_one_finding_with_a_row_for_each_handler(clinic):
    clinic.ghost("web-1")
    clinic.conn.execute("update partbox.partition p set owner = instance_id from partbox.instance")
    hostile = "a\x1b[2J" + "x" * 90
    clinic.conn.execute(RUNNING, {"seconds": 720, "timeout": None, "ids": ["7", "8", hostile]})
    found = clinic.one("hanging-handler")
    assert found["summary"] == "handler ship running 3 times without an end, for 12 m"
    (row, *_) = found["evidence"]
    said = "ship, 3 times in 1 process, the longest for 12 m, in process 4711 on web-1: record 17 (Placed) of Order "
    assert row.startswith(said)
    assert "waiting in partition 3: 0 records pending, 0 held" in found["evidence"][1]
    code, out, _ = clinic.run("doctor")
    assert (code, "\x1b" in out) == (1, False)


def test_workers_of_two_versions_are_a_finding(clinic):
    clinic.ghost("a", version="0.1.0")
    clinic.ghost("b", version="0.2.0")
    clinic.conn.execute("update partbox.partition set owner = (select instance_id from partbox.instance limit 1)")
    assert clinic.one("mixed-versions")["evidence"] == ["version 0.1.0 on a", "version 0.2.0 on b"]


@pytest.mark.every_version("asks the server's own tables")
def test_a_clock_that_differs_is_a_finding(clinic):
    """It says at least how much: the clocks are read one after the other."""
    text = "this host's clock is (60|[3-5][0-9]) s %s the database's"
    for ahead, said in ((60, "ahead of"), (-60, "behind"), (1, None)):
        report = examine_outbox(lambda: clinic.dsn, load(), Limits(), clock=lambda ahead=ahead: time.time() + ahead)
        found = [each.summary for each in report.findings if each.cause == "clock-skew"]
        assert len(found) == (said is not None)
        assert all(re.fullmatch(text % said, each) for each in found)
