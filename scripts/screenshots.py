"""Takes the pictures of the live page: a shop publishes, three nodes deliver, some events fail, a process joins."""

import argparse
import logging
import math
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from playwright.sync_api import Browser, sync_playwright
from starlette.applications import Starlette

from partbox import Dead, Event, Outbox
from partbox.dashboard import build_access, build_routes
from partbox.db.inspect.cached_overview import CachedOverview
from partbox.db.schema.migrate import migrate
from partbox.embedded.server import Server
from partbox.http.address import Address
from partbox.http.server import HttpServer
from partbox.supervisor.supervisor import Supervisor

IMAGES = Path(__file__).parent.parent / "docs" / "images"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
WIDE = {"width": 1120, "height": 2200}
LATE = {"4711": 30.0, "1234": 90.0}  # orders whose events fail, and for how many seconds they are put off
NOWHERE = 499  # every so many'th order goes nowhere


def deliver(event: Any) -> Dead | None:
    """Takes a few milliseconds; fails for some."""
    time.sleep(random.uniform(0.001, 0.006))
    if event.aggregate_id in LATE:
        raise ConnectionError("carrier.example:443: connection refused")
    if event.event_type == "OrderShipped" and int(event.aggregate_id) % NOWHERE == 0:
        return Dead(f"address: no such postcode for order {event.aggregate_id}")
    return None


def outbox(dsn: str, node: str) -> Outbox:
    made = Outbox(dsn, node=node, retry="fixed:45s", purge_interval="1d")
    for step in ("OrderPlaced", "OrderPaid", "OrderShipped"):
        made.register(deliver, step, "Order")
    return made


class Shop(threading.Thread):
    """Publishes in waves."""

    def __init__(self, dsn: str) -> None:
        super().__init__(name="shop", daemon=True)
        self._dsn = dsn
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def run(self) -> None:
        publisher, began = Outbox(self._dsn), time.monotonic()
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            while not self._stopping.wait(0.05):
                wave = 14 + 8 * math.sin((time.monotonic() - began) / 7) + random.uniform(-2, 2)
                with conn.transaction():
                    publisher.publish_many(conn, [_event() for _ in range(int(wave))])


def _event() -> Event:
    order = random.choice(list(LATE)) if random.random() < 0.002 else str(random.randrange(1, 20_000))
    step = random.choice(("OrderPlaced", "OrderPaid", "OrderShipped"))
    return Event(step, {"order": order}, aggregate_type="Order", aggregate_id=order)


@contextmanager
def database() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="partbox-pictures-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder) / "data", options={"fsync": "off"})
        try:
            dsn = server.start()
            migrate(dsn)
            yield dsn
        finally:
            server.stop("immediate")


@contextmanager
def page(dsn: str) -> Iterator[str]:
    """The address of the page, with its token."""
    settings = Outbox(dsn).settings
    allowed = build_access(Address("127.0.0.1", 0), None, new=True)
    overview_cache = CachedOverview(settings, lambda: dsn)
    server = HttpServer(Starlette(routes=build_routes(overview_cache, lambda: dsn, settings, allowed)))
    server.start()
    try:
        yield f"{server.url}/#token={allowed.token}"
    finally:
        server.stop()
        overview_cache.close()


def supervisors(dsn: str, stack: ExitStack) -> list[Supervisor]:
    made = [outbox(dsn, f"shop-{number}").supervisor(processes=2, concurrency=4) for number in (1, 2)]
    for supervisor in made:
        supervisor.start()
        stack.callback(supervisor.join, 20)
        stack.callback(supervisor.stop)
    return made


def settle(dsn: str) -> None:
    """Wait until every partition has its owner."""
    overview_cache = CachedOverview(Outbox(dsn).settings, lambda: dsn)
    while len((found := overview_cache.read_overview().clusters[0]).instances) < 4 or found.unowned:
        time.sleep(0.5)
    overview_cache.close()


def picture(browser: Browser, address: str, scheme: Any, seconds: float, nodes: list[Supervisor], name: str) -> None:
    """Watch for so long, let a process join one node, and take the picture while its partitions move."""
    context = browser.new_context(viewport=WIDE, color_scheme=scheme)
    tab = context.new_page()
    tab.goto(address)
    tab.wait_for_timeout(seconds * 1000)
    nodes[0].scale(len(nodes[0].children) + 1)
    tab.wait_for_selector(".cell[data-moved]", timeout=90_000)
    for fold in tab.locator("#dead .fold[aria-expanded=true]").all():
        fold.click()
    tab.wait_for_selector("#dead tr[data-record]", state="hidden")
    path = IMAGES / f"{name}-{scheme}.png"
    edge = tab.locator(".partitions").bounding_box()
    tab.screenshot(path=path, clip={"x": 0, "y": 0, "width": WIDE["width"], "height": edge["y"] + edge["height"] + 14})
    print(f"{path.relative_to(IMAGES.parent.parent)}: {path.stat().st_size / 1024:.0f} kB")
    nodes[0].scale(len(nodes[0].children) - 1)
    context.close()


def record(browser: Browser, address: str, dsn: str) -> None:
    """The picture of an event that has failed."""
    with psycopg.connect(dsn) as conn:
        failed = conn.execute("select record_id from partbox.attempt where outcome = 'dead' limit 1").fetchone()
    if failed is None:
        print("no event is dead yet: watch for longer (--seconds)")
        return
    tab = browser.new_context(viewport={"width": 1120, "height": 900}, color_scheme="light").new_page()
    tab.goto(address.replace("#", f"?record={failed[0]}#"))
    tab.wait_for_selector("#record .timeline", timeout=90_000)
    tab.wait_for_timeout(1_500)
    tab.locator("#record").screenshot(path=IMAGES / "page-record.png")
    tab.context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=125, help="how long each page is watched before")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    given = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    IMAGES.mkdir(exist_ok=True)
    with ExitStack() as stack:
        dsn = stack.enter_context(database())
        nodes = supervisors(dsn, stack)
        settle(dsn)
        shop = Shop(dsn)
        shop.start()
        stack.callback(shop.stop)
        address = stack.enter_context(page(dsn))
        driver = stack.enter_context(sync_playwright())
        browser = driver.chromium.launch(executable_path=given.chromium, args=FLAGS)
        stack.callback(browser.close)
        for scheme in ("light", "dark"):
            picture(browser, address, scheme, given.seconds, nodes, "page")
        record(browser, address, dsn)


if __name__ == "__main__":
    main()
