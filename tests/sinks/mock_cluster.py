"""librdkafka's mock cluster with its levers: the broker down, answers late, requests refused, topics made.

The library of Python has the cluster, but none of these; they are functions of the same shared library.
"""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka

BROKER = 1
PRODUCE = 0
"""The number of the request in Kafka's protocol."""
PRODUCER = 0
POINTER, INT, TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p


class MockCluster:
    """One broker, in memory of this process. Topics are made when they are asked for, unless a client forbids it."""

    def __init__(self) -> None:
        ours = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
        self._library = ctypes.CDLL(str(next(ours.glob("librdkafka*"))))
        configuration, said = self._call("conf_new", POINTER)(), ctypes.create_string_buffer(512)
        self._call("conf_set", INT, POINTER, TEXT, TEXT, TEXT, ctypes.c_size_t)(
            configuration, b"log_level", b"0", said, len(said)
        )
        make = self._call("new", POINTER, INT, POINTER, TEXT, ctypes.c_size_t)
        self._client = make(PRODUCER, configuration, said, len(said))
        assert self._client, said.value
        self._cluster = self._call("mock_cluster_new", POINTER, POINTER, INT)(self._client, 1)
        self.servers = str(self._call("mock_cluster_bootstraps", TEXT, POINTER)(self._cluster).decode())

    def go_down(self) -> None:
        """Cut all connections, and take none."""
        self._done("mock_broker_set_down", BROKER)

    def come_up(self) -> None:
        self._done("mock_broker_set_up", BROKER)

    def answer_after(self, milliseconds: int) -> None:
        """What comes in from now on is done at once, and answered then."""
        self._done("mock_broker_set_rtt", BROKER, milliseconds)

    def refuse(self, *errors: int) -> None:
        """The next requests to produce get these errors of Kafka, whatever is in them."""
        codes = (INT * len(errors))(*errors)
        push = self._call(
            "mock_push_request_errors_array", None, POINTER, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(INT)
        )
        push(self._cluster, PRODUCE, len(errors), codes)

    def create(self, topic: str) -> None:
        error = self._call("mock_topic_create", INT, POINTER, TEXT, INT, INT)(self._cluster, topic.encode(), 4, 1)
        assert error == 0

    def _done(self, name: str, *numbers: int) -> None:
        # Done by the cluster's own thread, for which this waits.
        assert self._call(name, INT, POINTER, *[INT] * len(numbers))(self._cluster, *numbers) == 0

    def _call(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        function = getattr(self._library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
        return function
