"""The overview: every subscription in one statement, right whatever the cursors, the statistics and the clock say."""

import random
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest
from observing import Conn, consume, publish, subscribe
from ownership import join, seize
from planted_records import Planter

from partbox.db.inspect import stats
from partbox.db.inspect.stats import Cluster
from partbox.db.schema.migrate import migrate
from partbox.errors import SchemaError


def look(conn: Conn, subscription: str = "default") -> Cluster:
    return stats.read_overview(conn, "partbox").cluster(subscription)


def pending(cluster: Cluster) -> dict[int, int]:
    return {each.partition: each.pending for each in cluster.partitions if each.pending}


def test_a_fresh_schema_has_one_subscription_with_nothing_to_do(conn):
    overview = stats.read_overview(conn, "partbox")
    assert abs(overview.at - datetime.now(UTC)) < timedelta(minutes=1)
    (cluster,) = overview.clusters
    assert (overview.schema, overview.newest_id) == ("partbox", 0)
    assert (cluster.subscription, cluster.paused, cluster.paused_at) == ("default", False, None)
    assert (len(cluster.partitions), cluster.unowned, cluster.instances) == (256, 256, ())
    assert cluster.records == dict.fromkeys(
        ["pending", "completed", "retrying", "deferred", "scheduled", "held", "ready", "dead", "discarded"], 0
    )
    assert (cluster.exact, cluster.oldest_age, cluster.blocked_keys) == (True, None, 0)


def test_subscriptions_are_listed_by_name_each_with_the_records_above_its_own_cursors(conn):
    subscribe(conn, "zebra")
    subscribe(conn, "audit")
    publish(conn, 3, 5)
    consume(conn)
    publish(conn, 3, 2, age=60)
    publish(conn, 9, 4, age=60)
    consume(conn, "zebra", 9)
    overview = stats.read_overview(conn, "partbox")
    assert [each.subscription for each in overview.clusters] == ["audit", "default", "zebra"]
    assert [pending(each) for each in overview.clusters] == [{3: 7, 9: 4}, {3: 2, 9: 4}, {3: 7}]
    assert [each.oldest_age for each in overview.clusters] == [pytest.approx(age, abs=45) for age in (180, 60, 180)]
    assert [each.completed for each in overview.clusters] == [0, 5, 4]
    assert overview.newest_id == 11


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 5))])
def test_the_overview_agrees_with_the_exact_view_whatever_the_cursors_are(conn, dsn, seed):
    chance = random.Random(seed)
    names = ["default", "a", "b", "c"]
    for name in names[1:]:
        subscribe(conn, name)
    with psycopg.connect(dsn) as slow:
        for _ in range(12):
            publish(conn, chance.randrange(4), chance.randrange(1, 40))
            publish(slow, chance.randrange(4), chance.randrange(1, 4))
            newest = stats.read_overview(conn, "partbox").newest_id
            for partition in range(4):
                name = chance.choice(names)
                at = chance.choice([newest, chance.randrange(newest + 1)])
                consume(conn, name, partition, last_id=at, floor_id=chance.randrange(at + 1) if at else 0)
        slow.commit()
    counted = dict(conn.execute("select subscription, count from partbox.backlog").fetchall())
    found = stats.read_overview(conn, "partbox").clusters
    assert {each.subscription: each.pending for each in found} == counted
    assert all(each.exact for each in found)


def test_instances_belong_to_their_subscription(conn):
    subscribe(conn, "audit")
    mine, theirs = join(conn, 2), join(conn, 1, subscription="audit")
    found = {each.subscription: each.instances for each in stats.read_overview(conn, "partbox").clusters}
    assert {each.instance_id for each in found["default"]} == set(mine)
    assert [each.instance_id for each in found["audit"]] == theirs
    assert len(found["default"]) == 2


def test_the_overview_of_one_subscription_agrees_with_the_overview_of_all(conn):
    subscribe(conn, "audit")
    publish(conn, 3, 5)
    consume(conn, "audit", last_id=2)
    (alone,) = stats.read_overview(conn, "partbox", "audit").clusters
    among = look(conn, "audit")
    assert (pending(alone), alone.records) == (pending(among), among.records)
    assert stats.read_cluster(conn, "partbox", "audit").pending == 3


def test_a_subscription_that_does_not_exist_is_refused_with_those_that_do(conn):
    subscribe(conn, "audit")
    for read in (stats.read_overview(conn, "partbox").cluster, lambda name: stats.read_cluster(conn, "partbox", name)):
        with pytest.raises(SchemaError, match="in schema 'partbox': there are 'audit', 'default'"):
            read("nope")
    assert stats.read_overview(conn, "partbox", "nope").clusters == ()


def test_leftovers_of_a_dropped_subscription_count_for_no_subscription(conn):
    plant = Planter(conn)
    plant.park("a", "retrying", blocks=True, subscription="gone")
    join(conn, 2, subscription="gone")
    (cluster,) = stats.read_overview(conn, "partbox").clusters
    assert (cluster.instances, cluster.parked, cluster.blocked_keys, cluster.completed) == ((), {}, 0, 1)


def test_a_writer_only_schema_has_no_subscription_and_still_a_newest_record(empty_dsn):
    migrate(empty_dsn, writer_only=True)
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        publish(conn, 1, 3)
        overview = stats.read_overview(conn, "partbox")
        assert (overview.clusters, overview.newest_id) == ((), 3)
        with pytest.raises(SchemaError, match="which has none"):
            overview.cluster("default")


def test_schemas_of_one_database_are_not_mixed(dsn, conn):
    other = "o'x\"; %s {x}"
    migrate(dsn, other)
    publish(conn, 3, 5)
    join(conn, 2)
    assert stats.read_overview(conn, other).clusters[0].records["pending"] == 0
    assert stats.read_overview(conn, other).clusters[0].instances == ()
    assert look(conn).pending == 5


def test_blocked_keys_are_aggregates_with_blocking_rows_each_once(conn):
    plant = Planter(conn)
    plant.park("a", "retrying", blocks=True)
    plant.park("a", "held", blocks=True)
    plant.park("a", "held", blocks=True, aggregate_type="Cart")
    plant.park("b", "dead")
    plant.park("c", "dead", blocks=True)
    plant.park(None, "retrying")
    cluster = look(conn)
    assert cluster.blocked_keys == 3
    assert cluster.parked == {"dead": 2, "held": 2, "retrying": 2}


def test_partitions_tell_when_they_were_claimed_and_saved_and_whether_they_are_suspect(conn):
    (me,) = join(conn)
    seize(conn, me, [7, 8])
    conn.execute(
        "update partbox.partition set claimed_at = now() - interval '1 h', saved_at = now() - interval '2 h',"
        " suspect_until_id = 5 where partition = 7"
    )
    seven, eight, nine = look(conn).partitions[7:10]
    assert (seven.owner, seven.claimed_age, seven.saved_age, seven.suspect) == (
        me,
        pytest.approx(3600, abs=60),
        pytest.approx(7200, abs=60),
        True,
    )
    assert (eight.saved_age, eight.suspect, eight.claimed_age) == (None, False, pytest.approx(0, abs=60))
    assert (nine.owner, nine.claimed_age) == (None, None)


def test_a_paused_subscription_says_since_when(conn):
    conn.execute("update partbox.subscription set paused_at = now() - interval '1 day'")
    cluster = look(conn)
    assert cluster.paused
    assert abs(datetime.now(UTC) - cluster.paused_at - timedelta(days=1)) <= timedelta(minutes=1)
    assert cluster.created > cluster.paused_at


def test_no_time_that_a_publisher_gives_breaks_the_overview(conn):
    publish(conn, 1)
    for moment in ("infinity", "-infinity", "4713-01-01 BC", "294276-01-01", "2500-01-01"):
        conn.execute("update partbox.record set created_at = %s", [moment])
        assert 0 <= look(conn).oldest_age < 1e12, moment


def test_a_gap_between_two_cursors_that_is_too_deep_makes_only_the_lower_one_an_estimate(conn, monkeypatch):
    monkeypatch.setattr(stats, "EXACT_UP_TO", 2_000)
    subscribe(conn, "audit")
    publish(conn, 7, 20_000)
    publish(conn, 8, 100)
    consume(conn, last_id=19_000)
    default = look(conn)
    assert (default.pending, default.exact) == (1_100, True)
    audit = look(conn, "audit")
    assert [each.exact for each in audit.partitions[7:9]] == [False, True]
    assert audit.pending == pytest.approx(20_100, rel=0.05)
    assert audit.partitions[7].fill == pytest.approx(1.0)


def test_completed_counts_records_that_are_neither_pending_nor_parked(conn):
    plant = Planter(conn)
    for aggregate in "abc":
        plant.park(aggregate, "dead")
    publish(conn, 3, 10)
    consume(conn)
    publish(conn, 3, 4)
    assert look(conn).completed == 10


def test_completed_leaves_out_what_was_purged_and_what_was_rolled_back(conn):
    publish(conn, 3, 1_000)
    with conn.transaction(force_rollback=True):
        publish(conn, 3, 5_000)
    publish(conn, 3, 1_000)
    consume(conn)
    assert look(conn).completed == 7_000  # by the ids, as long as nobody has looked at the table
    conn.execute("vacuum analyze partbox.record")
    assert look(conn).completed == pytest.approx(2_000, rel=0.05)
    conn.execute("delete from partbox.record where id <= 1000")
    conn.execute("insert into partbox.meta (key, value) values ('purged_id', '1000')")
    conn.execute("vacuum analyze partbox.record")
    assert look(conn).completed == pytest.approx(1_000, rel=0.05)


def test_the_log_above_equal_cursors_is_read_once(conn):
    for name in ("a", "b", "c"):
        subscribe(conn, name)
    for partition in range(4):
        publish(conn, partition, 3_000)
    conn.execute("vacuum analyze partbox.record")
    assert read(conn) < 12_000 * 1.1


@pytest.mark.parametrize("statistics", ["fresh", "of an empty log", "none"])
def test_a_deep_log_that_is_consumed_is_not_read(conn, statistics):
    conn.execute("alter table partbox.record_1 set (autovacuum_enabled = off)")
    if statistics == "of an empty log":
        conn.execute("vacuum analyze partbox.record")
    for partition in range(8):
        publish(conn, partition, 2_000)
    consume(conn)
    publish(conn, 0, 3)
    if statistics == "fresh":
        conn.execute("vacuum analyze partbox.record")
    assert read(conn) < 50
    assert pending(look(conn)) == {0: 3}


def read(conn: Conn) -> float:
    """How many rows of the log an overview reads."""
    plan = b"explain (analyze, format json, costs off, timing off) "
    with conn.transaction():
        conn.execute(stats.load_query("stats_plan", "partbox"), {"limit": None})
        values = {"subscription": None, "limit": stats.EXACT_UP_TO, "named": [], "listed": 50, "working": False}
        ((explained,),) = conn.execute(plan + stats.load_query("stats_overview", "partbox"), values).fetchall()
    return sum(rows_of_records(explained[0]["Plan"]))


def rows_of_records(node: dict) -> list[float]:
    """How many rows each scan of the log brought, its filter included."""
    own = []
    if node.get("Relation Name", "").startswith("record"):
        own = [(node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]]
    return own + [rows for child in node.get("Plans", []) for rows in rows_of_records(child)]


def test_owners_without_an_instance_row_own_nothing(conn):
    (me,) = join(conn)
    seize(conn, me, range(100))
    conn.execute("update partbox.partition set owner = %s where partition >= 200", [uuid4()])
    cluster = look(conn)
    assert cluster.unowned == 156
    assert [each.partitions for each in cluster.instances] == [100]


def test_the_age_of_a_parked_event_that_is_due_counts_from_its_publish(conn):
    plant = Planter(conn)

    def ages(aggregate_id: str, state: str, published: float, **parked) -> float | None:
        record = plant.park(aggregate_id, state, **parked)
        conn.execute(
            "update partbox.record set created_at = now() - %s * interval '1 s' where id = %s", [published, record]
        )
        found = conn.execute("select partition from partbox.parked where record_id = %s", [record]).fetchone()
        return look(conn).partitions[found[0]].parked_age

    for state in ("retrying", "deferred", "held", "ready"):
        assert ages(state, state, 300, due=60) == pytest.approx(300, abs=45), state
    assert ages("is dead", "dead", 300) is None
    assert ages("is of tomorrow", "scheduled", 300, due=86_400) is None
    assert ages("was due", "scheduled", 300, due=-1) == pytest.approx(300, abs=45)
    # Put off by its publisher until a minute ago, and failing since.
    until = datetime.now(UTC) - timedelta(seconds=60)
    record = plant.park("was put off", "retrying", occurred_at=until, available_at=until)
    conn.execute("update partbox.record set created_at = now() - interval '1 day' where id = %s", [record])
    (partition,) = conn.execute("select partition from partbox.parked where record_id = %s", [record]).fetchone()
    assert look(conn).partitions[partition].parked_age == pytest.approx(60, abs=45)
    cluster = look(conn)
    assert (cluster.oldest_age, cluster.unfinished_age) == (None, pytest.approx(300, abs=45))
    assert cluster.parked == {"dead": 1, "deferred": 1, "held": 1, "ready": 1, "retrying": 2, "scheduled": 2}
    for moment in ("infinity", "-infinity"):
        conn.execute("update partbox.record set created_at = %s", [moment])
        assert 0 <= look(conn).unfinished_age < 1e12, moment


def test_an_instance_shows_its_supervisor_and_its_long_running_handlers(conn):
    one, other = join(conn, 2)
    supervisor = uuid4()
    conn.execute(
        "update partbox.instance set supervisor = %s, running = json_build_array(json_build_object("
        "'handler', 'shop.ship', 'event_type', 'Placed', 'aggregate_type', 'Order', 'aggregate_id', null,"
        " 'record_id', 4711, 'since', extract(epoch from now() - interval '90 s'))) where instance_id = %s",
        [supervisor, one],
    )
    found = {each.instance_id: each for each in look(conn).instances}
    (running,) = found[one].running
    assert (running.handler, running.event_type, running.record_id) == ("shop.ship", "Placed", 4711)
    assert (running.aggregate_type, running.aggregate_id) == ("Order", None)
    assert running.seconds == pytest.approx(90, abs=45)
    assert (found[one].supervisor, found[other].supervisor, found[other].running) == (supervisor, None, ())


def test_the_overview_names_its_database(conn):
    assert stats.read_overview(conn, "partbox").database == conn.info.dbname
