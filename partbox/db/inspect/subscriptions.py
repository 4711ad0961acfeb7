"""The list of subscriptions, with what each has to do."""

from typing import Any

from psycopg import Connection

from partbox.db.inspect.stats import Cluster, overview
from partbox.db.operator.subscriptions import Subscription
from partbox.db.sql import query

EXACT = 100  # pending records of a partition that are counted; beyond them they are estimated


def listed(conn: Connection[Any], schema: str) -> list[Subscription]:
    """All of them, by name."""
    types = dict(conn.execute(query("subscription_types", schema), {}).fetchall())
    return [_listed(each, types.get(each.subscription)) for each in overview(conn, schema, exact_up_to=EXACT).clusters]


def _listed(cluster: Cluster, types: list[str] | None) -> Subscription:
    return Subscription(
        cluster.subscription,
        cluster.created,
        cluster.paused_at,
        None if types is None else tuple(types),
        len(cluster.instances),
        cluster.pending,
        cluster.exact,
        sum(cluster.waiting.values()),
        cluster.parked.get("dead", 0),
    )
