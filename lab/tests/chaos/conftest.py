"""A network of wires to the database of a test."""

import psycopg
import pytest

from partbox_lab.chaos.network import Network


@pytest.fixture
def network(dsn):
    with psycopg.connect(dsn) as conn:
        made = Network(conn.info.host, conn.info.port)
    made.start()
    yield made
    made.stop()
