"""What makes a node unhealthy, and what makes it only wait."""

import inspect
import json
import re
from pathlib import Path

import psycopg
import pytest
from overviews import ADA, NOW, cluster, instance, overview, partition, process, vitals, watched
from waiting import eventually

from partbox.db.inspect.stats import Overview
from partbox.errors import SchemaError
from partbox.http.routes import build_routes
from partbox.observe.health import health
from partbox.observe.health.health import Health, OrphanTracker, Sibling, list_orphan_problems, list_siblings

FREE = overview(cluster([partition(0, None, epoch=9), partition(1)], [instance(ADA)]))


def away():
    raise psycopg.OperationalError("connection to postgresql://ada:s3cret@db/shop failed")


def asked(its=vitals, look=overview):
    """Both answers: to "does it live", after a look, and to "is it ready"."""
    health = Health([watched(look, its)])
    ready = health.check_readiness()
    return health.check_liveness(), ready


def test_a_node_that_works_lives_and_is_ready():
    alive, ready = asked()
    assert (alive.http_status, ready.http_status) == (200, 200)
    assert alive.body["status"] == "ok"
    assert alive.body["supervisors"][0]["processes"] == {
        "wanted": 1,
        "living": 1,
        "ready": 1,
        "holding_a_lease": 1,
        "died_within_a_minute": 0,
    }


@pytest.mark.parametrize(
    ("its", "says"),
    [
        (vitals(is_running=False, failure="it broke"), "the supervisor has ended: it broke"),
        (vitals(loop_age=31.0), "the supervisor's loop has been stuck for 31 s"),
        (vitals(process(silent_seconds=25.0, is_vouched=False)), "all 1 processes have shown no sign of life for 25 s"),
    ],
    ids=["the supervisor ended", "its loop is stuck", "all are silent"],
)
def test_a_node_whose_own_loops_are_dead_is_dead(its, says):
    alive, ready = asked(lambda: its)
    assert (alive.http_status, ready.http_status) == (503, 503)
    assert says in alive.body["problems"][0]
    assert alive.body["status"] == "failing"


@pytest.mark.parametrize(
    "its",
    [
        vitals(loop_age=29.0),
        vitals(loop_age=59.0, lease=12.0),
        vitals(process(silent_seconds=1_000.0, is_vouched=True)),
        vitals(process(silent_seconds=25.0, is_vouched=False), process(silent_seconds=0.2)),
        vitals(process(silent_seconds=25.0, is_vouched=False, handler_seconds=25.0)),
        vitals(heartbeat_age=1_000.0),
        vitals(process(is_trusted=False), heartbeat_age=None),
        vitals(is_crash_looping=True, recent_deaths=50),
        vitals(has_started=False, is_running=False),
        vitals(is_stopping=True),
        vitals(is_stopping=True, is_running=False),
    ],
    ids=[
        "a slow step",
        "a long lease",
        "a handler that blocks the interpreter",
        "one of two is silent",
        "a handler over its time that blocks the interpreter",
        "no heartbeat gets through",
        "no lease",
        "a crash loop",
        "not started yet",
        "stopping",
        "stopped",
    ],
)
def test_a_problem_that_a_restart_would_not_solve_does_not_fail_liveness(its):
    assert asked(lambda: its)[0].http_status == 200
    assert asked(lambda: its, away)[0].http_status == 200


@pytest.mark.parametrize(
    ("its", "says"),
    [
        (vitals(is_stopping=True), "stopping"),
        (vitals(has_started=False, is_running=False), "no process is ready yet"),
        (vitals(process(is_ready=False, is_trusted=False)), "no process is ready yet"),
        (vitals(process(is_trusted=False), heartbeat_age=7.25), "renews for 6 s: the last heartbeat was 7.2 s ago"),
        (vitals(process(is_trusted=False), heartbeat_age=None), "there was no heartbeat yet"),
        (vitals(is_crash_looping=True, recent_deaths=5), "5 processes have died within a minute"),
    ],
    ids=["stopping", "starting", "no process works yet", "lease over", "never had one", "crash loop"],
)
def test_a_node_that_cannot_work_now_is_not_ready_and_says_why(its, says):
    ready = asked(lambda: its)[1]
    assert ready.http_status == 503
    assert says in " ".join(ready.problems)


def test_a_backlog_shows_in_the_body_and_fails_nothing():
    deep = overview(cluster([partition(0, pending=1_000_000, exact=False, oldest_age=7_200.0)], [instance(ADA)]))
    alive, ready = asked(look=lambda: deep)
    assert (alive.http_status, ready.http_status) == (200, 200)
    for answer in (alive, ready):
        backlog = answer.body["supervisors"][0]["backlog"]
        assert (backlog["pending"], backlog["exact"], backlog["oldest_age_seconds"]) == (1_000_000, False, 7_200.0)
        json.dumps(answer.body)


def test_a_database_that_is_away_shows_in_the_body_and_fails_nothing_by_itself():
    alive, ready = asked(look=away)
    assert (alive.http_status, ready.http_status) == (200, 200)
    assert ready.body["supervisors"][0]["database_error"] == "OperationalError"
    for secret in ("ada", "s3cret", "shop"):
        assert secret not in json.dumps([ready.body, alive.body])


def test_a_broken_schema_fails_only_readiness():
    def broken():
        raise SchemaError("no schema: run `partbox init`")

    alive, ready = asked(look=broken)
    assert (alive.http_status, ready.http_status) == (200, 503)
    assert "run `partbox init`" in ready.problems[0]


def test_a_subscription_that_was_dropped_fails_readiness_alone():
    alive, ready = asked(look=lambda: overview(cluster(subscription="audit")))
    assert (alive.http_status, ready.http_status) == (200, 503)
    assert "subscription 'default' does not exist any more" in ready.problems[0]


def test_an_outbox_without_any_subscription_left_is_not_ready():
    assert asked(look=lambda: Overview("partbox", NOW, ()))[1].http_status == 503


def test_liveness_is_answered_without_a_thread_of_the_pool():
    """All of those may be waiting for a database."""
    (probe,) = [route.endpoint for route in build_routes("p", [watched()]) if route.path == "/healthz"]
    assert inspect.iscoroutinefunction(probe)


def test_the_probes_of_the_documentation_wait_for_longer_than_readiness_does():
    page = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    probes, timeouts = re.findall(r"httpGet", page), re.findall(r"timeoutSeconds: (\d+)", page)
    assert len(timeouts) == len(probes) == 2
    assert all(int(seconds) > health.PROBE_TIMEOUT for seconds in timeouts)


@pytest.mark.parametrize(("seconds", "fails"), [(0.0, False), (12.0, False), (12.1, True)])
def test_partitions_without_owner_fail_readiness_after_two_leases(seconds, fails):
    assert bool([*list_orphan_problems(3, seconds, lease=6.0)]) is fails


def test_the_tracker_reports_for_how_long_partitions_were_seen_without_owner():
    orphans = OrphanTracker()
    assert orphans.update(FREE.clusters[0], 100.0) == (1, 0.0)
    assert orphans.update(FREE.clusters[0], 112.5) == (1, 12.5)


def test_the_time_without_owner_starts_anew_for_a_partition_that_had_an_owner_meanwhile():
    orphans = OrphanTracker()
    orphans.update(cluster([partition(0, None, epoch=9)], [instance(ADA)]), 100.0)
    assert orphans.update(cluster([partition(0, None, epoch=10)], [instance(ADA)]), 113.0) == (1, 0.0)
    orphans.update(cluster([partition(0, ADA, epoch=10)], [instance(ADA)]), 114.0)
    assert orphans.update(cluster([partition(0, None, epoch=10)], [instance(ADA)]), 115.0) == (1, 0.0)


def test_a_paused_subscription_has_no_owners_on_purpose():
    paused = cluster([partition(0, None)], [instance(ADA)], paused=True)
    orphans = OrphanTracker()
    orphans.update(paused, 100.0)
    assert orphans.update(paused, 500.0) == (0, 0.0)


def test_a_probe_sees_partitions_that_stay_without_owner():
    health = Health([watched(lambda: FREE, lambda: vitals(lease=0.01))])
    assert health.check_readiness().http_status == 200
    answer = eventually(lambda: (found := health.check_readiness()).http_status == 503 and found)
    assert "1 partitions have no owner" in answer.problems[0]


def test_the_body_shows_each_of_several_databases():
    health = Health([watched(database="orders"), watched(away, database="billing")])
    health.check_readiness()
    told = health.check_liveness().body["supervisors"]
    assert [each["database"] for each in told] == ["orders", "billing"]
    assert [each["database_error"] is None for each in told] == [True, False]


def test_with_several_databases_a_readiness_problem_names_its_database():
    waiting = vitals(
        process(is_ready=False, is_trusted=False), hindrance="cannot connect to the database: OperationalError"
    )
    health = Health([watched(database="orders"), watched(away, lambda: waiting, database="billing")])
    ready, alive = health.check_readiness(), health.check_liveness()
    assert (ready.http_status, alive.http_status) == (503, 200)
    assert ready.problems == ["billing: cannot connect to the database: OperationalError"]
    assert [each["hindrance"] for each in ready.body["supervisors"]] == [None, waiting.hindrance]


def test_only_the_root_problem_of_an_unusable_database_is_reported():
    def broken():
        raise SchemaError("no schema: run `partbox init`")

    waiting = vitals(hindrance="cannot use the database: no schema: run `partbox init`")
    for look in (broken, lambda: overview(cluster(subscription="audit"))):
        assert asked(lambda: waiting, look)[1].problems == [waiting.hindrance]


def test_a_page_links_to_the_other_databases_of_its_node_and_marks_those_in_trouble():
    waiting = vitals(hindrance="cannot connect")
    nodes = [watched(database="orders"), watched(away, lambda: waiting, database="billing")]
    assert list_siblings(nodes[:1], 0) == ()
    assert list_siblings(nodes, 0) == [
        Sibling("orders", "./", True, None),
        Sibling("billing", "./databases/2/", False, "cannot connect"),
    ]
    assert [each.href for each in list_siblings(nodes, 1)] == ["../../", "../../databases/2/"]
