"""Hundreds of subscriptions in one outbox: what looks at all of them costs little, and tells a trouble once."""

import time
from typing import Any

import psycopg
import pytest

from partbox import Outbox
from partbox.dashboard.feed import Feed
from partbox.db.driver import PlainCursor
from partbox.db.inspect import stats
from partbox.db.inspect.cached_overview import CachedOverview
from partbox.db.inspect.stats import list_subscriptions
from partbox.doctor.doctor import examine_outbox
from partbox.doctor.limits import limits_of
from partbox.operations.purge import list_segments, purge
from partbox.settings import load

MANY = 200
PLANT = """
insert into partbox.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload, created_at)
select hashtext(i::text) & 255, gen_random_uuid(), 'Placed', 'Order', i::text, '{}', clock_timestamp() - interval '2 h'
  from generate_series(1, 4000) i;
insert into partbox.subscription (name) select 'sub' || i from generate_series(1, 200) i;
insert into partbox.partition (subscription, partition, snapshot, last_id, floor_id)
select 'sub' || i, p, pg_current_snapshot(), i * 20, i * 20 from generate_series(1, 200) i, generate_series(0, 255) p;
insert into partbox.parked (subscription, record_id, partition, aggregate_type, aggregate_id, event_type, state, blocks,
                            attempts, due_at, parked_at, last_error)
select 'sub' || i, r.id, r.partition, r.aggregate_type, r.aggregate_id, r.event_type,
       case when r.id % 2 = 0 then 'dead' else 'retrying' end, r.id % 2 = 1, 3,
       case when r.id % 2 = 1 then clock_timestamp() + interval '1 h' end, clock_timestamp() - interval '10 min',
       'KeyError: x'
  from generate_series(1, 200) i join partbox.record r on r.id in (i * 20, i * 20 - 1);
analyze;
"""


@pytest.fixture
def many(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """With the subscription `default` 201 of them, nearly each with a backlog and a blocked and a dead event."""
    for statement in PLANT.split(";\n"):
        if statement:
            conn.execute(statement)
    return conn


def steps(plan: dict[str, Any]) -> int:
    """The work of a query: rows given or filtered away, and begins, of all nodes of its plan."""
    rows = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) + 1) * plan["Actual Loops"]
    return int(rows + sum(map(steps, plan.get("Plans", []))))


def test_the_cost_of_an_overview_of_many_subscriptions_is_not_quadratic(many: psycopg.Connection[Any]) -> None:
    with many.transaction():
        many.execute(stats.load_query("stats_plan", "partbox"), {"limit": None})
        values = {
            "subscription": None,
            "limit": stats.EXACT_UP_TO,
            "named": [],
            "listed": stats.MAX_LISTED,
            "working": False,
        }
        explain = b"explain (analyze, format json, costs off, timing off) "
        query = explain + stats.load_query("stats_overview", "partbox")  # type: ignore[operator]
        ((found,),) = many.execute(query, values).fetchall()
    assert steps(found[0]["Plan"]) < 30 * 256 * (MANY + 1)  # a scan of all for each took 60 times as many


def add_subscriptions(conn: psycopg.Connection[Any], number: int) -> None:
    conn.execute("insert into partbox.subscription (name) select 'late' || i from generate_series(1, %s) i", [number])
    conn.execute(
        "insert into partbox.partition (subscription, partition, snapshot, last_id, floor_id)"
        " select 'late' || i, p, pg_current_snapshot(), 4000, 3900"
        " from generate_series(1, %s) i, generate_series(0, 255) p",
        [number],
    )


@pytest.mark.parametrize("name", ["stats_overview", "hidden", "doctor_held", "doctor_expired", "find_standings"])
def test_a_query_about_many_new_subscriptions_is_not_quadratic_before_they_are_analysed(
    conn: psycopg.Connection[Any], name: str
) -> None:
    """Statistics from before the subscriptions made the planner compare each row of `partition` with all others."""
    conn.execute(PLANT.split(";\n", 1)[0])
    conn.execute("analyze")
    conn.execute("alter table partbox.partition set (autovacuum_enabled = off)")
    add_subscriptions(conn, MANY)
    records = conn.execute("select array_agg(id), array_agg(partition) from partbox.record where id > 3990").fetchone()
    values = {
        "subscription": None,
        "limit": stats.EXACT_UP_TO,
        "named": [],
        "listed": stats.FEW_LISTED,
        "working": True,
        "retain": 3600.0,
        "ids": records[0],
        "partitions": records[1],
        "most": 1,
    }
    with conn.transaction():
        if name in ("stats_overview", "find_standings"):
            conn.execute(stats.load_query("stats_plan", "partbox"), {"limit": None})
        explain = b"explain (analyze, format json, costs off, timing off) "
        ((found,),) = conn.execute(explain + stats.load_query(name, "partbox"), values).fetchall()
    assert steps(found[0]["Plan"]) < 30 * 256 * (MANY + 1)


def test_commands_send_as_many_statements_for_twenty_subscriptions_as_for_one(
    conn: psycopg.Connection[Any], dsn: str, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(retain_done="1h")
    conn.execute(PLANT.split(";\n", 1)[0])
    sent, execute = list[object](), PlainCursor.execute

    def count(cursor: Any, query: Any, *more: Any, **how: Any) -> Any:
        sent.append(query)
        return execute(cursor, query, *more, **how)

    def count_all() -> list[int]:
        counts = []
        for command in (
            lambda: examine_outbox(lambda: dsn, settings, limits_of(settings, 60.0), wait=lambda seconds: None),
            outbox.subscriptions.list,
            outbox.records.find,
            lambda: list_segments(lambda: dsn, settings),
            lambda: purge(lambda: dsn, settings, dry_run=True),
        ):
            sent.clear()
            command()
            counts.append(len(sent))
        return counts

    monkeypatch.setattr(PlainCursor, "execute", count)
    alone = count_all()
    add_subscriptions(conn, 19)
    conn.execute(
        "insert into partbox.parked"
        " (subscription, record_id, partition, aggregate_type, aggregate_id, event_type, state, blocks)"
        " select 'late' || i, 1, 1, 'Order', '1', 'Placed', 'retrying', true from generate_series(1, 19) i"
    )
    assert min(alone) > 1
    assert count_all() == alone


def test_pending_records_are_counted_for_all_and_estimated_below_the_newest_hundred(
    conn: psycopg.Connection[Any],
) -> None:
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, payload)"
        " select i % 2, gen_random_uuid(), 'Placed', '{}' from generate_series(1, 1000) i"
    )
    conn.execute("analyze partbox.record")
    add_subscriptions(conn, 9)
    for number, last_id in ((6, 1000), (7, 990), (8, 800), (9, 0)):
        conn.execute("update partbox.partition set last_id = %s where subscription = %s", [last_id, f"late{number}"])
    seen = stats.read_overview(conn, "partbox", listed=0)
    found = {each.subscription: (each.pending, each.pending_max, each.exact) for each in seen.clusters}
    assert found["late6"] == (0, 0, True)
    assert found["late7"] == (10, 5, True)
    assert found["late8"] == (200, 100, True)
    pending, _, exact = found["late9"]
    assert not exact
    assert 202 < pending <= 1000


def test_partitions_are_listed_for_some_of_many_subscriptions_and_summed_up_for_the_others(
    many: psycopg.Connection[Any],
) -> None:
    many.execute(
        "insert into partbox.instance (subscription, node, hostname, pid, version, lease)"
        " values ('sub199', 'n', 'h', 1, '0', '6 s')"
    )
    seen = stats.read_overview(many, "partbox", named=["sub198"])
    assert len(seen.clusters) == MANY + 1
    whole = [each for each in seen.clusters if each.unlisted is None]
    assert len(whole) == stats.MAX_LISTED
    assert {"sub198", "sub199", "default"} <= {each.subscription for each in whole}
    assert all(len(each.partitions) == 256 for each in whole)
    assert len(seen.cluster("sub199").instances) == 1
    for name in ("sub150", "sub198", "sub199", "default"):
        mine, alone = seen.cluster(name), stats.read_cluster(many, "partbox", name)
        assert mine.pending == pytest.approx(alone.pending, rel=0.1), name
        assert mine.oldest_age == pytest.approx(alone.oldest_age or 0, abs=60), name
        assert (mine.parked, mine.blocked_keys, mine.unowned) == (alone.parked, alone.blocked_keys, 256)
    assert seen.cluster("sub200").pending == 0
    assert seen.cluster("sub200").oldest_age is None


def test_the_list_of_many_subscriptions_agrees_with_the_overview(many: psycopg.Connection[Any]) -> None:
    found = list_subscriptions(many, "partbox")
    assert len(found) == MANY + 1
    assert {(each.parked, each.dead) for each in found} == {(0, 0), (1, 1)}


def test_doctor_reports_a_problem_of_many_subscriptions_once_and_names_the_worst(
    many: psycopg.Connection[Any], dsn: str
) -> None:
    settings = load()
    found = examine_outbox(lambda: dsn, settings, limits_of(settings, 60.0), wait=time.sleep).findings
    causes = [each.cause for each in found]
    assert sorted(causes) == sorted(set(causes))
    (missing,) = (each for each in found if each.cause == "no-workers")
    assert missing.summary.startswith("201 subscriptions, the worst ")
    assert missing.evidence[-1] == "and 196 more"
    assert len(missing.evidence) == 6
    assert any("--subscription" in each or "MODULE:OUTBOX" in each for each in missing.remedy)
    (dead,) = (each for each in found if each.cause == "dead")
    assert dead.summary.startswith("200 subscriptions, the worst sub")


def test_the_dashboard_of_many_subscriptions_merges_troubles_and_shows_the_selected_one_in_full(
    many: psycopg.Connection[Any], dsn: str
) -> None:
    overview_cache = CachedOverview(load(), lambda: dsn, patience=60.0, fresh=0.0)
    try:
        feed = Feed(overview_cache, "partbox")
        feed._update_views(overview_cache.read_overview())
        before = feed.build_frame("sub150", history=False)
        overview_cache._fresh_until = 0.0
        feed._update_views(overview_cache.read_overview())
        after = feed.build_frame("sub150", history=False)
    finally:
        overview_cache.close()
    assert sum(before["subscription"]["pendings"]) == 0
    assert sum(after["subscription"]["pendings"]) == after["subscription"]["pending"] > 0
    assert len(after["subscriptions"]) == 100
    assert after["subscription_count"] == MANY + 1
    assert "sub150" in {each["name"] for each in after["subscriptions"]}
    texts = [each["text"] for each in after["troubles"]]
    assert len(texts) == 2
    assert "The same is true of 199 other subscriptions: " in texts[1]
