"""SQS FIFO queues sink, by boto3: `sqs://REGION?endpoint=URL`, with credentials as boto3 finds them. The topic is the
name of the queue, to which `.fifo` is added if it is missing."""

import asyncio
import base64
import hashlib
import json
import logging
import re
import string
from asyncio import CancelledError
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from partbox.errors import DownstreamUnavailable, SettingsError, UnrecoverableError
from partbox.sinks.message import DEFAULT, Message
from partbox.sinks.sink import ANSWER_TIMEOUT, Result, Sink, broker_answer, library
from partbox.text.dsn import query_of
from partbox.text.secrets import mask_url

# Most messages of one request.
ENTRIES: Final = 10
# Bytes of one message, and of all messages of a request.
BYTES: Final = 262_144
# Attempts of one request within the sink's timeout.
ATTEMPTS: Final = 3
# Requests in flight at once.
CONNECTIONS: Final = 10
# Most characters of a group's name.
GROUP: Final = 128
NAMED: Final = ("specversion", "id", "source", "type", "subject", "time", "aggregatetype")
OTHERS: Final = ("tenantid", "idempotencykey", "dataschema")
REFUSALS: Final = ("InvalidMessageContents", "BatchRequestTooLong", "InvalidParameterValue")
_TEXT = re.compile(r"[\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+")
_GROUP = frozenset(string.ascii_letters + string.digits + string.punctuation)

# Each new client would log where it found its credentials.
logging.getLogger("botocore.credentials").setLevel(logging.WARNING)


class SqsSink(Sink):
    """A sink that sends events to Amazon SQS FIFO queues.

    The message group is the aggregate and the deduplication id is the event id, so SQS keeps the order and drops
    repetitions within five minutes. SQS allows ten attributes for a message, such as `ce_id` of CloudEvents. The
    attribute `headers` is a JSON object of the publisher's headers, `ce_tenantid`, `ce_idempotencykey` and
    `ce_dataschema`. The body is the payload. If the payload is not text, the body is its base64 and the attribute
    `encoding` says so."""

    # Enough for four batches to keep all connections busy. Waiting for a connection spends the time of the answer.
    max_size = 30

    def __init__(
        self, region: str | None = None, topic: str = DEFAULT, *, endpoint: str | None = None, **options: Any
    ) -> None:
        super().__init__(topic, **options)
        self._region = region
        self._endpoint = endpoint
        self._open: Any = None
        self._threads: ThreadPoolExecutor
        self._queues: dict[str, str] = {}

    @classmethod
    def from_url(cls, url: str, topic: str) -> "SqsSink":
        parts = urlsplit(url)
        if not parts.netloc or parts.path not in ("", "/"):
            raise SettingsError(f"{mask_url(url)!r} names no region: write sqs://eu-central-1; the queue is the topic")
        return cls(parts.netloc, topic, endpoint=query_of(url, ("endpoint",)).get("endpoint"))

    def check(self) -> None:
        """Raise SettingsError if the client library, the credentials, or the queue of a fixed topic is missing."""
        session = library("boto3", "sqs").session.Session()
        if session.get_credentials() is None:
            raise SettingsError("sqs: there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        if self.topic.fixed and broker_answer(asyncio.to_thread(self._lacks_topic, self.topic.fixed)):
            raise SettingsError(_format_no_queue(self.topic.fixed))

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        # Several requests are in flight at once. Each has up to ten messages, of one queue.
        client, loop = await self._connect(), asyncio.get_running_loop()
        queues: dict[str, list[Message]] = {}
        for message in messages:
            queues.setdefault(message.topic, []).append(message)
        requests = [request for queue in queues.values() for request in _split_requests(queue)]
        responses = [
            loop.run_in_executor(self._threads, partial(self._send_request, client, request)) for request in requests
        ]
        results: dict[str, Result] = {}
        for request, said in zip(requests, await asyncio.gather(*responses, return_exceptions=True), strict=True):
            results.update(
                said if isinstance(said, dict) else dict.fromkeys(_list_ids(request), _build_closed_error(said))
            )
        return [results[message.id] for message in messages]

    async def close(self) -> None:
        client, self._open, self._queues = self._open, None, {}
        if client is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            client.close()

    async def _connect(self) -> Any:
        # The client is created on first use, by a single thread.
        # Making it takes long, and several threads cannot do so at once.
        async with self._connect_lock():
            if self._open is None:
                self._open = await asyncio.to_thread(self._make_client, self._timeout)
                self._threads = ThreadPoolExecutor(CONNECTIONS, "partbox-sqs")
        return self._open

    def _send_request(self, client: Any, messages: Sequence[Message]) -> dict[str, Result]:
        errors = library("botocore.exceptions", "sqs")
        entries = [_build_entry(number, message) for number, message in enumerate(messages)]
        try:
            broker_answer = client.send_message_batch(
                QueueUrl=self._find_queue(client, messages[0].topic), Entries=entries
            )
        except errors.ClientError as error:
            return dict.fromkeys(_list_ids(messages), self._build_refusal(error, messages))
        except (errors.BotoCoreError, OSError) as error:
            raise DownstreamUnavailable(f"SQS: {error}") from error
        results: dict[str, Result] = dict.fromkeys(_list_ids(messages))
        for failed in broker_answer.get("Failed", ()):
            text = f"SQS says {failed['Code']}: {failed.get('Message', '')}"
            wrong = UnrecoverableError(text) if failed.get("SenderFault") else RuntimeError(text)
            results[messages[int(failed["Id"])].id] = wrong
        return results

    def _build_refusal(self, error: Any, messages: Sequence[Message]) -> Result:
        code, text = error.response["Error"]["Code"], str(error)
        if _is_missing(error):
            self._queues.pop(messages[0].topic, None)
            return LookupError(_format_no_queue(messages[0].topic))
        if error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500 or "Throttl" in code:
            return DownstreamUnavailable(f"SQS: {text}")
        # Of several messages one may be to blame, so all are retried, one by one.
        refused = len(messages) == 1 and code.removeprefix("AWS.SimpleQueueService.") in REFUSALS
        return UnrecoverableError(f"SQS: {text}") if refused else RuntimeError(f"SQS: {text}")

    def _make_client(self, timeout: float) -> Any:
        """Create an SQS client whose requests give up after `timeout`."""
        # The sink gives up then too. Threads that waited longer would leave none for the next requests.
        each = timeout / ATTEMPTS
        config = library("botocore.config", "sqs").Config(
            connect_timeout=each,
            read_timeout=each,
            retries={"total_max_attempts": ATTEMPTS},
            max_pool_connections=CONNECTIONS,
        )
        return library("boto3", "sqs").client(
            "sqs", region_name=self._region, endpoint_url=self._endpoint, config=config
        )

    def _lacks_topic(self, topic: str) -> bool:
        client = self._make_client(ANSWER_TIMEOUT)
        try:
            client.get_queue_url(QueueName=_queue_name_of(topic))
        except library("botocore.exceptions", "sqs").ClientError as error:
            return _is_missing(error)
        finally:
            client.close()
        return False

    def _find_queue(self, client: Any, topic: str) -> str:
        if (url := self._queues.get(topic)) is None:
            url = self._queues[topic] = client.get_queue_url(QueueName=_queue_name_of(topic))["QueueUrl"]
        return url


def _list_ids(messages: Sequence[Message]) -> list[str]:
    return [message.id for message in messages]


def _build_closed_error(error: BaseException) -> BaseException:
    """Return the error of an SQS request, or DownstreamUnavailable if the client closed before it was sent."""
    # Such a request was queued when the client closed.
    return DownstreamUnavailable("the connection to SQS was closed") if isinstance(error, CancelledError) else error


def _queue_name_of(topic: str) -> str:
    # The name of a FIFO queue ends with `.fifo` and has no other dot.
    return topic if topic.endswith(".fifo") else f"{topic.replace('.', '-')}.fifo"


def _is_missing(error: Any) -> bool:
    code = error.response["Error"]["Code"]
    return "NonExistentQueue" in code or "QueueDoesNotExist" in code


def _format_no_queue(topic: str) -> str:
    return f"SQS has no queue {_queue_name_of(topic)!r} here: create it"


def _split_requests(messages: Sequence[Message]) -> list[list[Message]]:
    parts: list[list[Message]] = [[]]
    size = 0
    for message in messages:
        entry_size = len(json.dumps(_build_entry(0, message)))
        if parts[-1] and (len(parts[-1]) == ENTRIES or size + entry_size > BYTES):
            parts.append([])
            size = 0
        parts[-1].append(message)
        size += entry_size
    return parts


def _build_entry(number: int, message: Message) -> dict[str, Any]:
    body, encoding = _encode_body(message)
    of_event = message.attributes
    # SQS takes at most ten attributes.
    known = {f"ce_{name}": of_event[name] for name in NAMED if name in of_event}
    others = {f"ce_{name}": of_event[name] for name in OTHERS if name in of_event}
    attributes = {**known, "content-type": message.content_type, **encoding}
    if more := {**message.headers, **others}:
        attributes["headers"] = json.dumps(more)
    return {
        "Id": str(number),
        "MessageBody": body,
        "MessageGroupId": _group_of(message),
        "MessageDeduplicationId": message.id,
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in attributes.items() if value
        },
    }


def _encode_body(message: Message) -> tuple[str, dict[str, str]]:
    """Encode a payload as the text of an SQS message. Return the text, and its encoding attribute if it is base64."""
    # Payloads that are not text, or that have characters SQS refuses, are sent as base64.
    try:
        text = message.value.decode()
    except UnicodeDecodeError:
        text = ""
    if _TEXT.fullmatch(text):
        return text, {}
    return base64.b64encode(message.value).decode(), {"encoding": "base64"}


def _group_of(message: Message) -> str:
    """Return the SQS message group of an event, which keeps messages of the same key in order."""
    # The group is the aggregate id, its hash if a group's name cannot hold it, or the event id if there is no aggregate
    # id.
    if message.key is None:
        return message.id
    if 0 < len(message.key) <= GROUP and _GROUP.issuperset(message.key):
        return message.key
    return hashlib.sha256(message.key.encode()).hexdigest()
