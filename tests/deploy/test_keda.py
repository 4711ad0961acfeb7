"""The example for KEDA: its form, and its queries on a real outbox, by the role that they are given."""

import json
import re
from typing import Any

import psycopg
import pytest
from kit import DEPLOY, ROOT, documents
from planted_records import Planter

KEDA = DEPLOY / "keda"
PAGE = ROOT / "docs" / "deploying.md"


@pytest.fixture(scope="module")
def triggers() -> list[dict[str, Any]]:
    _, scaled = documents((KEDA / "scaledobject.yaml").read_text())
    return scaled["spec"]["triggers"]


def test_keda_scales_the_deployment_of_the_manifests_with_the_secret_that_it_names():
    authentication, scaled = documents((KEDA / "scaledobject.yaml").read_text())
    spec = scaled["spec"]
    assert {each["apiVersion"] for each in (authentication, scaled)} == {"keda.sh/v1alpha1"}
    workers = documents((DEPLOY / "kubernetes" / "worker.yaml").read_text())
    deployments = {each["metadata"]["name"] for each in workers if each["kind"] == "Deployment"}
    assert spec["scaleTargetRef"] == {"kind": "Deployment", "name": deployments.pop()}
    assert 1 <= spec["minReplicaCount"] < spec["maxReplicaCount"]
    assert [each["metricType"] for each in spec["triggers"]] == ["AverageValue", "Value"]
    for trigger in spec["triggers"]:
        assert trigger["type"] == "postgresql"
        assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
        assert float(trigger["metadata"]["targetQueryValue"]) > 0
    # Counted is enough for as many pods as there may be.
    assert float(spec["triggers"][0]["metadata"]["targetQueryValue"]) * spec["maxReplicaCount"] <= 256 * 400


def asked(conn: psycopg.Connection[Any], triggers: list[dict[str, Any]]) -> list[float]:
    """The lag and the oldest age, as the role sees them."""
    with conn.transaction(force_rollback=True):
        conn.execute((KEDA / "scaler-role.sql").read_text())
        conn.execute("set local role shop_scaler")
        rows = [conn.execute(each["metadata"]["query"]).fetchall() for each in triggers]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("select payload from partbox.record")
    return [float(value) for ((value,),) in rows]


def test_keda_queries_return_how_much_waits_and_for_how_long_and_stay_fast_under_any_backlog(conn, triggers):
    conn.autocommit = True
    planter = Planter(conn)
    assert asked(conn, triggers) == [0, 0]

    planter.park("a", "retrying", due=-1)
    planter.park("b", "retrying", due=3600)
    planter.park("c", "dead")
    assert asked(conn, triggers) == [1, 0]

    for key in ("a", "b", "c"):
        planter.publish(key)
    newest = "id in (select max(id) from partbox.record)"
    conn.execute(f"update partbox.record set created_at = created_at - interval '90 s' where {newest}")
    lag, age = asked(conn, triggers)
    assert lag == 4
    assert 90 <= age <= (planter.outbox.stats.cluster().oldest_age or 0)

    for _ in range(500):
        planter.publish("deep")
    assert asked(conn, triggers)[0] == 4 + 400

    planter.outbox.subscriptions.pause("default")
    assert asked(conn, triggers) == [0, 0]


def test_the_status_has_the_keys_that_the_page_names_for_other_autoscalers(conn, forks):
    conn.autocommit = True
    planter = Planter(conn)
    planter.publish("a")
    planter.park("b", "dead", consumed=False)
    process = forks.start("partbox", "status", "--json", "--dsn", conn.info.dsn)
    said, _ = process.communicate()
    status = json.loads(said)
    named = re.findall(r"`(\w+)`", re.findall(r"`partbox status --json` has (.*?)\.\n", PAGE.read_text(), re.DOTALL)[0])
    assert len(named) > 4
    assert set(named) <= set(status)
    assert (status["pending"], status["exact"], status["paused"], status["unowned"]) == (2, True, False, 256)
    assert status["oldest_age"] > 0
    assert status["instances"] == []
