"""The page that a worker serves beside its metrics."""

import http.client
import logging
from urllib.parse import urlsplit

from waiting import eventually

from partbox import Outbox
from partbox.dashboard import build_pages
from partbox.supervisor.serving import serve_pages

GLANCES = "select count(*) from pg_stat_activity where application_name = 'partbox glance' and datname = %s"


def test_metrics_and_page_share_one_database_connection_that_is_closed_at_the_end(dsn, conn, caplog):
    caplog.set_level(logging.INFO, "partbox.http")

    def glances() -> int:
        return conn.execute(GLANCES, [conn.info.dbname]).fetchone()[0]

    with serve_pages(":0", [Outbox(dsn).supervisor(metrics=True)], build_pages):
        where = next(word for word in caplog.messages[-1].split() if word.startswith("http://"))
        address = urlsplit(where.rstrip(",")).netloc
        metrics, events = (http.client.HTTPConnection(address, timeout=30) for _ in range(2))
        metrics.request("GET", "/metrics")
        assert b"partbox_database_up 1" in metrics.getresponse().read()
        events.request("GET", "/events")
        assert events.getresponse().readline().startswith(b"data: ")
        assert glances() == 1
        for each in (metrics, events):
            each.close()
    eventually(lambda: glances() == 0)
