"""What only Redis does."""

import asyncio

import pytest
from delivered import delivered
from redis.asyncio import Connection
from waiting import eventually

from partbox import Outbox
from partbox.sinks import sink_of


@pytest.fixture(params=["redis"])
def kind(request):
    return request.param


@pytest.fixture
def outbox(dsn, place):
    outbox = Outbox(dsn, retry="fixed:0.05")
    outbox.register(sink_of(place.broker.url, place.template), "*")
    return outbox


def publish(outbox, conn, keys):
    with conn.transaction():
        for key in keys:
            outbox.publish(
                conn, "Placed", "x" * 1_000, aggregate_type="Order", aggregate_id=key, headers={"card": "sesame"}
            )


def parked(conn):
    return conn.execute("select state, attempts, last_error from partbox.parked").fetchall()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (("config", "set", "maxmemory", "1000"), ("config", "set", "maxmemory", "0"), "used memory"),
        (("replicaof", "127.0.0.1", "1"), ("replicaof", "no", "one"), "read only replica"),
    ],
    ids=["full", "replica"],
)
def test_events_wait_uncharged_while_redis_accepts_nothing(outbox, conn, place, before, after, said):
    client = place.broker.client()
    client.execute_command(*before)
    try:
        publish(outbox, conn, "123")
        with outbox.worker():
            eventually(lambda: any(said in (error or "") for _, _, error in parked(conn)))
            assert {attempts for _, attempts, _ in parked(conn)} == {0}
            assert "sesame" not in str(parked(conn))
            client.execute_command(*after)
            eventually(lambda: len(place.all()) == 3)
    finally:
        client.execute_command(*after)


def test_a_stream_without_write_permission_does_not_hold_up_the_others(outbox, conn, place):
    client = place.broker.client()
    client.execute_command("acl", "setuser", "default", "resetkeys", f"~{place.topics[1]}")
    try:
        publish(outbox, conn, "1")
        with conn.transaction():
            outbox.publish(conn, "Seen", 1)
        with outbox.worker():
            eventually(lambda: "has no permissions" in str(parked(conn)))
            eventually(lambda: client.xlen(place.topics[1]) == 1)
    finally:
        client.execute_command("acl", "setuser", "default", "allkeys")


def senders(client) -> set[str]:
    """The connections of others."""
    return {each["id"] for each in client.client_list() if int(each["id"]) != client.client_id()}


def test_the_sink_disconnects_from_a_demoted_server(outbox, conn, place):
    """Its address may lead to the new primary by now."""
    client = place.broker.client()
    with outbox.worker():
        publish(outbox, conn, "1")
        eventually(lambda: len(place.all()) == 1)
        before = senders(client)
        client.execute_command("replicaof", "127.0.0.1", "1")
        try:
            publish(outbox, conn, "2")
            eventually(lambda: not senders(client) & before)  # each probe makes another, which is left as well
        finally:
            client.execute_command("replicaof", "no", "one")
        eventually(lambda: len(place.all()) == 2)


def test_a_list_that_connects_while_another_gives_up_the_connections_leaves_none_open(place, monkeypatch):
    """Two lists are in flight, and the broker refuses the first."""
    client, connect = place.broker.client(), Connection._connect

    async def both():
        sink, connecting, closed = sink_of(place.broker.url, place.template), asyncio.Event(), asyncio.Event()

        async def held_up(connection):
            connecting.set()
            await closed.wait()
            await connect(connection)

        monkeypatch.setattr(Connection, "_connect", held_up)
        sending = asyncio.create_task(sink.handle([delivered(1, "1", b"x" * size) for size in (10, 2 << 20)]))
        await connecting.wait()
        await sink.close()
        closed.set()
        return await sending

    sent, too_large = asyncio.run(both())
    assert sent is None
    assert "takes no value" in str(too_large)
    assert senders(client) == set()
