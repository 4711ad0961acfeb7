"""A broker of tests/sinks in a process of its own, so that it shares no GIL with its clients.

It prints its URL, or exits with the reason why it cannot run. Each line of its input names topics to create, and it
ends with its input."""

import sys
import tempfile
from http.server import ThreadingHTTPServer
from pathlib import Path

from partbox_lab.ratios import TESTS

sys.path[:0] = [str(TESTS / "sinks"), str(TESTS)]

import pytest  # noqa: E402
from brokers import Broker  # noqa: E402
from kafka_nodes import LARGE  # noqa: E402
from kafkas import ApacheKafka  # noqa: E402
from kinds import BROKERS  # noqa: E402

# The standard library's 5 are fewer than the clients that connect at once.
ThreadingHTTPServer.request_queue_size = 128
ApacheKafka.java = LARGE


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="partbox-bench-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        try:
            broker = BROKERS[sys.argv[1]](Path(folder))
        except pytest.skip.Exception as missing:
            sys.exit(str(missing))
        try:
            broker.start()
            _serve(broker)
        finally:
            broker.kill()


def _serve(broker: Broker) -> None:
    print(broker.url, flush=True)
    for line in sys.stdin:
        broker.prepare(*line.split())
        print("prepared", flush=True)


if __name__ == "__main__":
    main()
