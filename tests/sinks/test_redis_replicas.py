"""Redis replicas confirm a batch before the batch counts as sent."""

import asyncio

import pytest
from broker_redis import Redis
from brokers import HOST
from delivered import delivered
from waiting import eventually

from partbox.errors import DownstreamUnavailable
from partbox.sinks.redis import RedisSink

TOPIC = "events"


@pytest.fixture
def servers(tmp_path):
    """Two empty servers of Redis, the primary and its replica to be."""
    servers = []
    try:
        for name in ("primary", "replica"):
            folder = tmp_path / name
            folder.mkdir()
            servers.append(Redis(folder))
            servers[-1].start()
        yield servers
    finally:
        for server in servers:
            server.kill()


def copy_primary(primary, replica, delay=0):
    """Make one server the replica of the other, which knows it then, and sends its copy after `delay` seconds."""
    primary.client().config_set("repl-diskless-sync-delay", delay)
    replica.client().replicaof(HOST, primary.port)
    # The replica connects by itself, some time after the command. Until then there is nobody to wait for.
    eventually(lambda: "slave0" in primary.client().info("replication"))


def await_copy(primary):
    eventually(lambda: primary.client().info("replication").get("slave0", {}).get("state") == "online")


def send(server, **settings):
    """Send an event with a new sink, and return its outcome."""
    sink = RedisSink(server.url, TOPIC, **{"timeout": 1e7} | settings)

    async def send_and_close():
        try:
            return (await sink.handle([delivered(1)]))[0]
        finally:
            await sink.close()

    return asyncio.run(send_and_close())


def test_a_batch_counts_as_sent_when_the_replica_that_loads_its_copy_has_the_batch(servers):
    primary, replica = servers
    copy_primary(primary, replica, delay=1)
    assert send(primary) is None
    assert replica.client().xlen(TOPIC) == 1


def test_a_batch_whose_server_is_demoted_before_the_replica_confirms_is_sent_again(servers):
    primary, replica = servers
    copy_primary(primary, replica)
    await_copy(primary)
    replica.hold()

    async def demote_while_sending():
        sink = RedisSink(primary.url, TOPIC)
        sending = asyncio.create_task(sink.handle([delivered(1)]))
        await asyncio.to_thread(
            eventually, lambda: any(each["cmd"] == "wait" for each in primary.client().client_list())
        )
        primary.client().replicaof(HOST, replica.port)
        (outcome,) = await sending
        await sink.close()
        return outcome

    outcome = asyncio.run(demote_while_sending())
    assert isinstance(outcome, DownstreamUnavailable)
    assert "UNBLOCKED" in str(outcome)


def test_a_replica_that_does_not_answer_delays_each_batch_but_repeats_none(servers):
    primary, replica = servers
    copy_primary(primary, replica)
    await_copy(primary)
    replica.hold()
    sink = RedisSink(primary.url, TOPIC, timeout=1.0)

    async def send_twice():
        outcomes = [*await sink.handle([delivered(1)]), *await sink.handle([delivered(2)])]
        await sink.close()
        return outcomes

    assert asyncio.run(send_twice()) == [None, None]
    assert primary.client().xlen(TOPIC) == 2


def test_a_batch_that_fewer_replicas_than_asked_confirm_is_sent_again(servers):
    primary, replica = servers
    copy_primary(primary, replica)
    await_copy(primary)
    assert send(primary, replicas=1) is None
    outcome = send(primary, replicas=2, timeout=1.0)
    assert isinstance(outcome, DownstreamUnavailable)
    assert "1 of 2 replicas confirmed the events within 0.5 s" in str(outcome)


def test_a_sink_that_asks_for_no_replica_does_not_wait_for_one(servers, monkeypatch):
    monkeypatch.setattr("partbox.sinks.redis.REPLICA_TIMEOUT", 1e6)
    primary, replica = servers
    copy_primary(primary, replica)
    await_copy(primary)
    replica.hold()
    assert send(primary, replicas=0) is None


def test_a_user_who_may_ask_for_no_replicas_sends_as_before(servers):
    primary, replica = servers
    copy_primary(primary, replica)
    primary.client().execute_command("acl", "setuser", "default", "-info", "-wait")
    assert send(primary) is None
    outcome = send(primary, replicas=1)
    assert isinstance(outcome, DownstreamUnavailable)
    assert "no permissions" in str(outcome)
