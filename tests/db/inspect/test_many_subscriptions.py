"""Hundreds of subscriptions in one outbox: what looks at all of them costs little, and tells a trouble once."""

import time
from typing import Any

import psycopg
import pytest

from partbox.dashboard.feed import Feed
from partbox.db.inspect import stats
from partbox.db.inspect.cached_overview import CachedOverview
from partbox.db.inspect.stats import list_subscriptions
from partbox.doctor.doctor import examine_outbox
from partbox.doctor.limits import limits_of
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
