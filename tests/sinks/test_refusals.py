"""Refusals of one kind of broker alone, beside those of the contract."""

import asyncio

import pytest
from broker_nats import Nats
from broker_redis import Redis
from brokers import HOST, free_port
from confluent_kafka import KafkaError
from delivered import delivered
from kafkas import MockKafka
from mock_cluster import MockCluster

from partbox import DownstreamUnavailable, UnrecoverableError
from partbox.sinks import Sink
from partbox.sinks.kafka import KafkaSink, result
from partbox.sinks.nats import NatsSink
from partbox.sinks.redis import SAFE_SIZE, RedisSink

TOO_LARGE, TOO_FEW = KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.NOT_ENOUGH_REPLICAS
TOO_FEW_AFTERWARDS = KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def sent(sink: Sink, *lists):
    """The outcomes of these lists, one after the other."""

    async def all_of_them():
        try:
            return [await sink.handle(each) for each in lists]
        finally:
            await sink.close()

    return asyncio.run(all_of_them())


def numbered(*numbers: int, size: int = 10):
    return [delivered(number, str(number), b"x" * size) for number in numbers]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory) -> MockKafka:
    return MockKafka(tmp_path_factory.mktemp("kafka"))


@pytest.fixture
def cluster(kafka) -> MockCluster:
    return kafka.cluster


@pytest.fixture
def topic(request) -> str:
    return f"{abs(hash(request.node.name))}"


def ids(kafka, topic) -> list[int]:
    return sorted(int(each.id.replace("-", ""), 16) for each in kafka.all(topic))


def test_no_message_of_a_batch_that_kafka_refuses_is_dead_and_later_messages_are_accepted(kafka, cluster, topic):
    sink = KafkaSink(kafka.servers, topic)
    (warm,) = sent(sink, numbered(1))
    assert warm == [None]
    cluster.refuse(TOO_LARGE)
    first, *again = sent(sink, numbered(2, 3, 4), numbered(2), numbered(3), numbered(4), numbered(5, 6))
    assert not any(isinstance(each, UnrecoverableError) for each in first)
    assert any(each is not None for each in first)
    assert again == [[None], [None], [None], [None, None]]
    assert {*ids(kafka, topic)} == {*range(1, 7)}


def test_a_message_that_kafka_refuses_even_alone_is_dead_with_kafkas_error(kafka, cluster, topic):
    cluster.refuse(TOO_LARGE, TOO_LARGE)
    (refused,), then = sent(KafkaSink(kafka.servers, topic), numbered(1), numbered(2))
    assert isinstance(refused, UnrecoverableError)
    assert "MSG_SIZE_TOO_LARGE: Broker: Message size too large" in str(refused)
    assert then == [None]
    assert ids(kafka, topic) == [2]


def test_a_message_that_kafka_refused_because_of_its_batch_arrives(kafka, cluster, topic):
    cluster.refuse(TOO_LARGE)
    assert sent(KafkaSink(kafka.servers, topic), numbered(1)) == [[None]]
    assert ids(kafka, topic) == [1]


def test_messages_wait_while_kafka_has_too_few_replicas(kafka, cluster, topic):
    cluster.refuse(TOO_FEW, TOO_FEW, TOO_FEW_AFTERWARDS)
    same_key = [delivered(number, "k", b"%d" % number) for number in range(1, 9)]
    assert sent(KafkaSink(kafka.servers, topic), same_key) == [[None] * 8]
    assert list(dict.fromkeys(int(each.value) for each in kafka.all(topic))) == [*range(1, 9)]


def test_a_message_that_kafka_stored_but_did_not_acknowledge_comes_again_with_its_id(kafka, cluster, topic):
    sink = KafkaSink(kafka.servers, topic)

    async def held_up():
        assert await sink.handle(numbered(1)) == [None]
        kafka.hold()
        usual, sink._timeout = sink._timeout, 1.0
        (unanswered,) = await sink.handle(numbered(2))
        sink._timeout = usual
        kafka.release()
        assert "no answer from the broker" in str(unanswered)
        assert await sink.handle(numbered(2)) == [None]
        await sink.close()

    asyncio.run(held_up())
    assert ids(kafka, topic) == [1, 2, 2]


def test_an_unreachable_kafka_is_reported_with_the_error_of_its_library():
    sink = KafkaSink(f"{HOST}:{free_port()}", "orders", timeout=2.0)
    ((unanswered,),) = sent(sink, numbered(1))
    assert isinstance(unanswered, DownstreamUnavailable)
    assert str(unanswered).startswith("no answer from the broker in 2 s; Kafka says ")
    assert "refused" in str(unanswered) or "brokers are down" in str(unanswered)


def test_an_event_loop_that_does_not_run_holds_up_no_list_of_the_next_event_loop(kafka, cluster, topic):
    sink, old = KafkaSink(kafka.servers, topic, timeout=10.0), asyncio.new_event_loop()
    kafka.hold()
    first = old.create_task(sink.handle(numbered(1)))
    old.run_until_complete(asyncio.sleep(0.2))
    kafka.release()
    assert asyncio.run(sink.handle(numbered(2))) == [None]
    assert old.run_until_complete(first) == [None]
    old.run_until_complete(sink.close())
    old.run_until_complete(asyncio.sleep(0.05))
    old.close()


def test_every_error_code_of_kafka_is_mapped_to_an_outcome():
    codes = [code for name in dir(KafkaError) if isinstance(code := getattr(KafkaError, name), int) and name.isupper()]
    for code in codes:
        assert isinstance(result(KafkaError, "orders", KafkaError(code)), Exception)
    assert len(codes) > 100


@pytest.fixture
def nats(tmp_path):
    broker = Nats(tmp_path)
    broker.start()
    yield broker
    broker.kill()


def test_headers_count_towards_the_largest_message_of_nats(nats):
    nats.prepare("here")
    sink = NatsSink(nats.url, "here")
    lists = [[delivered(1, "a", b"x" * (nats.largest - size))] for size in range(500, 0, -1)]
    outcomes = [outcome for (outcome,) in sent(sink, *lists, numbered(2))]
    assert outcomes[0] is outcomes[-1] is None
    refused = [each for each in outcomes if each is not None]
    assert refused
    assert all(isinstance(each, UnrecoverableError) for each in refused)


def test_a_message_too_large_for_a_stream_of_nats_is_dead_with_the_error_of_nats(nats):
    nats.prepare("here", largest=1_000)
    large = delivered(1, "a", b"x" * 2_000)
    (refused, taken), then = sent(NatsSink(nats.url, "here"), [large, *numbered(2)], numbered(3))
    assert isinstance(refused, UnrecoverableError)
    assert "NATS says message size exceeds maximum allowed" in str(refused)
    assert [taken, *then] == [None, None]


@pytest.fixture
def redis(tmp_path):
    broker = Redis(tmp_path)
    broker.start()
    yield broker
    broker.kill()


def test_no_later_message_of_an_aggregate_is_added_in_a_list_after_redis_refused_one(redis):
    """The handler may say that a dead event blocks those behind it."""
    large = delivered(1, "a", b"x" * (redis.largest + 1))
    ((refused, behind, other),) = sent(RedisSink(redis.url, "here"), [large, delivered(2, "a"), delivered(3, "b")])
    assert isinstance(refused, UnrecoverableError)
    assert (other, len(redis.all("here"))) == (None, 1)
    assert behind is not None


def test_large_values_are_sent_to_a_redis_that_does_not_reveal_its_limit(redis):
    client = redis.client()
    client.config_set("proto-max-bulk-len", 4 * SAFE_SIZE)
    client.acl_setuser("relay", enabled=True, passwords=["+word"], commands=["+xadd", "+multi", "+exec", "+hello"],
                       keys=["*"])  # fmt: skip
    sink = RedisSink(f"redis://relay:word@{HOST}:{redis.port}/0", "here")
    assert sent(sink, numbered(1, size=2 * SAFE_SIZE)) == [[None]]
