"""Print how long events of a small tenant wait, from commit to handler: alone, and beside a tenant with 90 % of all
events.

Run as `python -m partbox_lab.ratios.tenants`. The great tenant publishes more than its limit lets through, so its
backlog grows. The last line is the p99 of the small tenant beside the great one, divided by its p99 alone. Without a
limit (`--unlimited`), the small tenant waits behind the whole backlog."""

import argparse
import time
from itertools import count
from statistics import quantiles
from typing import Any

import psycopg

from partbox import Outbox
from partbox.db.schema.migrate import migrate
from partbox_lab.bench.workspace import SCHEMA, bench_workspace

# Seconds between two events of the small tenant. Each comes with nine of the great tenant.
APART = 0.02
GREAT = 9
TAKES = 0.005  # seconds of a handler
RATE = 100  # starts per second and tenant
CONNECTIONS = 20


def measure(dsn: str, given: argparse.Namespace, *, great: int) -> list[float]:
    """Publish and deliver for the given seconds, and return the milliseconds that each event of the small tenant
    waited."""
    outbox, waited = Outbox(dsn, schema=SCHEMA), list[float]()

    def handle(event: Any) -> None:
        if event.tenant_id == "small":
            waited.append(1_000 * (time.monotonic() - event.payload["at"]))
        time.sleep(TAKES)

    limits: Any = {} if given.unlimited else {"rate": f"{RATE}/s", "limit_by": "tenant_id"}
    outbox.on("Met", **limits)(handle)
    with psycopg.connect(dsn, autocommit=True) as conn, outbox.worker(concurrency=given.concurrency):
        # A worker starts with no permits saved up.
        time.sleep(1.0)
        until, small = time.monotonic() + given.seconds, 0
        for small in count(1):
            with conn.transaction():
                for number in range(great + 1):
                    tenant, payload = "great" if number < great else "small", {"at": time.monotonic()}
                    key = f"{tenant}-{(small * (great + 1) + number) % 500}"
                    outbox.publish(conn, "Met", payload, aggregate_type="Key", aggregate_id=key, tenant_id=tenant)
            time.sleep(APART)
            if time.monotonic() > until:
                break
        while len(waited) < small:
            time.sleep(0.1)
    return waited


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="tenants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--unlimited", action="store_true", help="the handler has no limit")
    parser.add_argument("--dsn", help=f"another server than an embedded one; its schema {SCHEMA} is made, and dropped")
    given = parser.parse_args()
    with bench_workspace(given.dsn, CONNECTIONS) as place:
        migrate(place.dsn, SCHEMA)
        found = []
        for name, great in (("alone", 0), ("beside a great tenant", GREAT)):
            waited = measure(place.dsn, given, great=great)
            cuts = quantiles(waited, n=100, method="inclusive")
            found.append(cuts[98])
            print(f"{name:<24}{len(waited):>6} events{cuts[49]:>9.2f} median{cuts[98]:>9.2f} p99 ms", flush=True)
        print(f"p99 beside over alone: {found[1] / found[0]:.2f}")


if __name__ == "__main__":
    main()
