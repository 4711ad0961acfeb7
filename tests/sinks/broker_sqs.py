"""SQS, as moto has it."""

import base64
import json
import logging
import os
import threading
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from brokers import HOST, Broker, Received, received

from partbox_lab.chaos.network import CUT, HALF, PASS, Network


def _one_at_a_time(application: Any) -> Any:
    """moto's application for one request at a time: what comes in while another message is deleted may be lost in it.

    Those that wait for messages change nothing.
    """
    lock = threading.Lock()

    class Locked(application):  # type: ignore[misc]
        def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
            waits = environ.get("HTTP_X_AMZ_TARGET", "").endswith("ReceiveMessage")
            with nullcontext() if waits else lock:
                return super().__call__(environ, start_response)

    return Locked


class Sqs(Broker):
    """SQS as moto has it, in memory of this process: it keeps nothing, so what is cut is the way to it."""

    largest = 1 << 20
    many = 2_000  # each takes 5 ms of this process, and 15 while thousands wait
    lacking = "SQS has no queue '{topic}.fifo' here: create it"
    words = "SQS: .*Batch requests cannot be longer than"
    REGION = "eu-central-1"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from moto.moto_server import threaded_moto_server as moto
        from moto.sqs.models import Queue

        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # or it tells of each request
        for count in ("", "_delayed", "_not_visible"):  # of all messages, with every one that comes in
            setattr(Queue, f"approximate_number_of_messages{count}", 0)
        moto.DomainDispatcherApplication = _one_at_a_time(moto.DomainDispatcherApplication)  # type: ignore[misc]
        self._server = moto.ThreadedMotoServer(HOST, self.port, verbose=False)
        self._network = Network(HOST, self.port)
        self._taken: dict[str, list[Received]] = {}

    @property
    def url(self) -> str:
        return f"sqs://{self.REGION}?endpoint=http://{HOST}:{self._wire.port}"

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        self._server.start()
        self._network.start()
        self._wire = self._network.wire()

    def kill(self) -> None:
        self._network.stop()
        self._server.stop()

    def go(self) -> None:
        self._network.set(self._wire, CUT)

    def come_back(self) -> None:
        self._network.set(self._wire, PASS)

    def hold(self) -> None:
        self._network.set(self._wire, HALF)

    def release(self) -> None:
        self._network.set(self._wire, PASS)

    def prepare(self, *topics: str) -> None:
        for topic in topics:
            self._client.create_queue(QueueName=f"{topic}.fifo", Attributes={"FifoQueue": "true"})
            self._taken[topic] = []

    def keep_up(self, *topics: str) -> None:
        self.all(*topics)

    def all(self, *topics: str) -> list[Received]:
        client = self._client
        for topic in topics:
            queue = client.get_queue_url(QueueName=f"{topic}.fifo")["QueueUrl"]
            while found := client.receive_message(
                QueueUrl=queue, MaxNumberOfMessages=10, MessageAttributeNames=["All"], AttributeNames=["All"]
            ).get("Messages"):
                self._taken[topic] += [_of_sqs(topic, each) for each in found]
                gone = [{"Id": each["MessageId"], "ReceiptHandle": each["ReceiptHandle"]} for each in found]
                client.delete_message_batch(QueueUrl=queue, Entries=gone)
        return [each for topic in topics for each in self._taken[topic]]

    @cached_property
    def _client(self) -> Any:
        import boto3

        return boto3.client("sqs", region_name=self.REGION, endpoint_url=self.endpoint)


def _of_sqs(topic: str, message: dict[str, Any]) -> Received:
    headers = {name: each["StringValue"] for name, each in message["MessageAttributes"].items()}
    headers |= json.loads(headers.pop("headers", "{}"))
    body = message["Body"].encode()
    if headers.pop("encoding", None) == "base64":
        body = base64.b64decode(body)
    key = message["Attributes"]["MessageGroupId"] if "ce_subject" in headers else None
    return received(topic, headers, "ce_", body, headers.get("ce_subject") and key)
