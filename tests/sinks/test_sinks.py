"""What sinks have in common: URLs, topics, messages, and the order of an aggregate whatever a broker refuses."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from broker_nats import Nats
from delivered import delivered as event
from hypothesis import given
from hypothesis import strategies as st
from waiting import eventually

from partbox import DownstreamUnavailable, Outbox, RetryAfter, RetryAfterError, SettingsError, UnrecoverableError
from partbox.events import DeliveredEvent
from partbox.sinks import Message, Sink, sink_of
from partbox.sinks.message import Topic, ascii_headers
from partbox.sinks.sink import RETRY_LATER


class Told(Sink):
    """Does with each message, by its record id, what it was told; the ids that it was given are in `sent`."""

    def __init__(self, what: dict[int, Any] | None = None) -> None:
        super().__init__()
        self.what = what or {}
        self.sent: list[list[int]] = []

    async def send(self, messages: Sequence[Message]) -> list[Any]:
        self.sent.append([message.event.id for message in messages])
        return [self.what.get(message.event.id) for message in messages]


class Once(Told):
    """Does it the first time only."""

    async def send(self, messages: Sequence[Message]) -> list[Any]:
        results = await super().send(messages)
        for message in messages:
            self.what.pop(message.event.id, None)
        return results


def handled(sink: Sink, *events: DeliveredEvent) -> list[object]:
    return asyncio.run(sink.handle(events))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "is not a target for events: use kafka://"),
        ("kafka", "is not a target for events"),
        ("ftp://there/x", "is not a target for events"),
        ("http://[", "is not a URL"),
        ("kafka://", "names no servers: write kafka://HOST:9092"),
        ("kafka://h:1/topic", "names no servers"),
        ("kafka://h:1?no.such=1", "No such configuration property"),
        ("kafka://h:1?enable.idempotence=false", "enable.idempotence cannot be set"),
        ("kafka://h:1?sasl.usrname=secret", 'configuration property: "sasl.usrname": did you mean .sasl.username.'),
        ("kafka://h:1?linger.ms=1&linger.ms=2", "has the option 'linger.ms' twice: give it once, with its value"),
        ("kafka://h:1?sasl.username=", "has the option 'sasl.username' without a value"),
        ("kafka://h:1#secret", "is followed by a #, after which nothing is read"),
        ("amqp://u:secret@h/v?exchnge=orders", "has the unknown option 'exchnge': did you mean 'exchange'?"),
        ("amqp://u:a?secret@h/v", "has an @ behind a .|names no host"),
        ("amqps://h?cert=x", "has the unknown option 'cert': did you mean 'certfile'?"),
        ("nats://secret@h:4222?stream=orders", "has the unknown option 'stream': leave it out"),
        ("tls://h:4222?x=1", "has the unknown option 'x'"),
        ("redis://:secret@h:1/0?max_len=1000", "unknown option 'max_len': did you mean 'maxlen'?"),
        ("redis://h:1/0?ssl_ca_certs=x", "unknown option 'ssl_ca_certs'"),
        ("unix:///tmp/redis.sock?socket_timeot=1", "unknown option 'socket_timeot': did you mean 'socket_timeout'?"),
        ("redis://h/0?maxlen=1&maxlen=2", "has the option 'maxlen' twice"),
        ("sqs://eu-central-1?endpont=http://127.0.0.1:1", "has the unknown option 'endpont': did you mean 'endpoint'?"),
        ("https://h/hooks?x=1#secret", "is followed by a #, and what comes after # is never"),
        ("file:events.jsonl?sync=no", "names no file"),
        ("stdout:?x=1", "has more than the scheme: write"),
        ("amqp://", "names no host"),
        ("nats://", "names no servers"),
        ("redis://h:1/0?maxlen=-1", "maxlen=-1 .* is not a number of entries"),
        ("redis://:secret@h:1/0?maxlen=x", "is not a number of entries"),
        ("redis://h:1/0?replicas=all", "replicas=all .* is not a number of replicas, such as .replicas=1"),
        ("https://", "names no host"),
        ("redis://:secret@h/0?protocol=9", "protocol must be either 2 or 3: correct that option"),
        ("rediss://h/0?ssl_cert_reqs=x", "Invalid SSL Certificate Requirements Flag: x: correct that option"),
        ("redis://h/x", "names no database by its number: write redis://HOST:6379/0"),
        ("redis://h/0?db=-1", "names no database by its number"),
        ("amqp://h/v?heartbeat=-1", "has a heartbeat that is no number of seconds: write heartbeat=60"),
        *(
            (f"{scheme}://{servers}", "has a port that is no number from 1 to 65535")
            for scheme in ("kafka", "amqp", "nats", "redis", "https")
            for servers in ("h:99999", "h:-1", "h:x", "[::1]:0")
        ),
        ("https://u:secret/x@h", "has a port that is no number .*in a password : is %3A"),
        ("nats://h:4222,h2:99999", "has a port that is no number"),
        ("sqs://", "names no region"),
        ("sqs://eu-central-1/orders", "names no region"),
        ("file:", "names no file"),
        ("stdout:x", "has more than the scheme: write"),
    ],
)
def test_a_wrong_url_is_refused_in_one_line_without_its_secrets(url: str, said: str):
    with pytest.raises(SettingsError, match=said) as refused:
        sink_of(url).check()
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "library", "extra"),
    [
        ("kafka://there:9092", "confluent_kafka", "kafka"),
        ("amqp://there", "aio_pika", "rabbitmq"),
        ("nats://there", "nats", "nats"),
        ("redis://there", "redis", "redis"),
        ("https://there", "httpx2", "webhook"),
        ("sqs://eu-central-1", "boto3", "sqs"),
    ],
)
def test_a_library_that_is_not_there_is_named_with_its_extra(monkeypatch, url, library, extra):
    for name in [each for each in sys.modules if each.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SettingsError, match=rf"needs the library {library}: pip install 'partbox\[{extra}\]'"):
        sink_of(url).check()


@pytest.mark.parametrize(
    ("template", "topic"),
    [
        ("{aggregate_type}-events", "größe-x-events"),
        ("Shop.{event_type}", "Shop.placed"),
        ("fixed", "fixed"),
        ("{{{tenant_id}}}", "{none}"),
    ],
)
def test_field_values_in_a_topic_are_lower_cased_and_illegal_characters_become_dashes(template: str, topic: str):
    expected = topic.replace("ö", "-").replace("ß", "-")
    assert Topic(template).of(event(1, aggregate_type="Größe x")) == expected


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("", "is empty"),
        ("{key}", r"names \{key\}: there are \{aggregate_type\}"),
        ("{", "write a literal brace twice"),
        ("{0}", "names"),
    ],
)
def test_a_wrong_template_is_refused(template: str, said: str):
    with pytest.raises(SettingsError, match=said):
        Topic(template)


def test_a_fixed_topic_is_known_before_any_event():
    assert (Topic("orders").fixed, Topic("{event_type}").fixed) == ("orders", None)


keys = st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=12)
fates = st.sampled_from([None, UnrecoverableError("no"), ValueError("later")])


@given(keys, st.dictionaries(st.integers(1, 12), fates))
def test_no_message_is_sent_before_its_predecessor_of_the_same_aggregate_has_arrived(found, what):
    sink, events = Told(what), [event(id, key) for id, key in enumerate(found, start=1)]
    outcomes = dict(zip((each.id for each in events), handled(sink, *events), strict=True))
    taken: dict[str, list[int]] = {}
    for wave in sink.sent:
        named = [key for id in wave if (key := found[id - 1]) is not None]
        assert len(named) == len(set(named))
        for id in wave:
            taken.setdefault(found[id - 1] or str(id), []).append(id)
    for ids in taken.values():
        assert ids == sorted(ids)
        assert all(what.get(id) is None for id in ids[:-1])
    sent = {id for wave in sink.sent for id in wave}
    for id, outcome in outcomes.items():
        assert outcome is (what.get(id) if id in sent else RETRY_LATER)
    assert {id for id, key in enumerate(found, start=1) if key is None} <= sent


def test_no_further_message_is_tried_when_the_broker_is_gone():
    gone = DownstreamUnavailable("it is down")
    sink = Told({1: gone})
    assert handled(sink, event(1, "a"), event(2, "b"), event(3, "b")) == [gone, None, RETRY_LATER]
    assert sink.sent == [[1, 2]]


def test_an_error_of_a_whole_send_is_the_outcome_of_each_message():
    class Broken(Told):
        async def send(self, messages: Sequence[Message]) -> list[Any]:
            raise ValueError("broken")

    outcomes = handled(Broken(), event(1, "a"), event(2, "b"))
    assert [str(each) for each in outcomes] == ["broken", "broken"]


def test_a_broker_that_does_not_answer_counts_as_gone_and_its_connection_is_closed():
    class Silent(Told):
        closed = False

        async def send(self, messages: Sequence[Message]) -> list[Any]:
            await asyncio.Event().wait()
            return []

        async def close(self) -> None:
            self.closed = True

    sink = Silent()
    sink._timeout = 0.01
    (outcome,) = handled(sink, event(1))
    assert isinstance(outcome, DownstreamUnavailable)
    assert sink.closed


class Closed(Told):
    """Counts how often it is closed."""

    closings = 0

    async def close(self) -> None:
        self.closings += 1


AWAY = [DownstreamUnavailable("a replica"), RetryAfterError(1, "503"), ConnectionResetError(), TimeoutError()]


@pytest.mark.parametrize(
    ("result", "closings"),
    [
        *((error, 1) for error in AWAY),
        (None, 0),
        (ValueError("no"), 0),
        (UnrecoverableError("no"), 0),
        (RETRY_LATER, 0),
    ],
)
def test_any_sign_that_the_broker_is_away_makes_the_sink_reconnect(result, closings):
    sink = Closed({1: result})
    handled(sink, event(1), event(2))
    assert sink.closings == closings


def test_concurrent_lists_close_their_shared_connection_once():
    """What a third has opened meanwhile stays."""

    class Together(Closed):
        async def send(self, messages: Sequence[Message]) -> list[Any]:
            await both.wait()
            raise DownstreamUnavailable("a replica")

    both, sink = asyncio.Barrier(2), Together()

    async def run() -> None:
        for closings in (1, 2):
            await asyncio.gather(sink.handle([event(1)]), sink.handle([event(2)]))
            assert sink.closings == closings

    asyncio.run(run())


def test_an_outcome_of_not_yet_charges_no_attempt():
    assert RetryAfter(0) == RETRY_LATER


def test_a_sink_is_registered_as_any_handler_and_gets_lists(dsn, conn):
    sink = Once({2: ValueError("later")})
    outbox = Outbox(dsn, retry="fixed:0.05")
    outbox.on("Placed", name="to the broker")(sink)
    with conn.transaction():
        for number in range(3):
            outbox.publish(conn, "Placed", number, aggregate_type="Order", aggregate_id="1")
    with outbox.worker():
        eventually(lambda: 3 in {id for wave in sink.sent for id in wave})
    sent = [id for wave in sink.sent for id in wave]
    assert sorted(set(sent)) == [1, 2, 3]
    assert sent.index(1) < sent.index(2) < sent.index(3)


def test_headers_of_visible_ascii_hold_any_text():
    assert ascii_headers({"x-ü": 'a "b" 5%\n€'}) == {"x-%C3%BC": "a%20%22b%22%205%25%0A%E2%82%AC"}
    assert ascii_headers({"ce-id": "plain/text:1;2"}) == {"ce-id": "plain/text:1;2"}


def test_lines_can_be_written_to_a_device_that_cannot_be_synced():
    sink = sink_of("file:/dev/null")
    assert asyncio.run(sink.handle([event(1)])) == [None]


def test_the_nats_sink_goes_on_after_thousands_of_refused_messages(tmp_path):
    """The library counts what it has refused itself as in flight, and sends nothing more with 4,000 of those."""
    nats = Nats(tmp_path)
    nats.start()
    nats.prepare("order-events")

    async def send() -> list[object]:
        sink = sink_of(nats.url)
        large = event(1)
        large.record = (*large.record[:7], bytes(2 << 20), *large.record[8:])
        refused = [(await sink.handle([large]))[0] for _ in range(4_001)]
        taken = await sink.handle([event(2)])
        await sink.close()
        assert {type(each) for each in refused} == {UnrecoverableError}
        return taken

    try:
        assert asyncio.run(send()) == [None]
    finally:
        nats.kill()
