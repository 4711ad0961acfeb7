"""What only NATS does."""

import pytest

from partbox import Outbox
from partbox.sinks import sink_of

MOST = 1 << 20  # bytes that a server takes unless told otherwise, headers included


@pytest.fixture(params=["nats"])
def kind(request):
    return request.param


@pytest.mark.parametrize("size", [MOST - 1_000, MOST - 10, MOST, MOST + 1])
def test_a_message_that_its_headers_make_too_large_stops_no_other(dsn, conn, place, size):
    """The server closes the connection for such a one, and would for ever."""
    outbox = Outbox(dsn, retry="fixed:0.05", max_payload="4MiB")
    outbox.register(sink_of(place.broker.url, place.template), "*", max_attempts=None)
    with conn.transaction():
        for key, payload in (("1", b"x" * size), ("2", b"y")):
            outbox.publish(conn, "Placed", payload, content_type="text/plain", aggregate_type="Order", aggregate_id=key)
    assert outbox.drain(timeout=30)
    fits = size == MOST - 1_000
    assert sorted(each.key for each in place.all()) == (["1", "2"] if fits else ["2"])
    assert ["raise its max_payload" in each.error for each in outbox.dead.list()] == ([] if fits else [True])
