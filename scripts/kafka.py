"""Run Apache Kafka on loopback and free ports until Ctrl-C, and remove all that it wrote.

Prints its address, as `partbox relay` takes it in another terminal:

    ./scripts/kafka --nodes 3
    partbox relay --to kafka://127.0.0.1:PORT,127.0.0.1:PORT,127.0.0.1:PORT

One node makes topics that are sent to. Three keep three replicas of a topic, two of which must be in sync, and make
none.

Java 17 or newer runs it. Maven fetches it once, some 60 MB, into .partbox/kafka.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS / "sinks"), str(TESTS)]

from kafka_libraries import OutOfReach, libraries  # noqa: E402
from kafkas import ApacheKafka, KafkaCluster  # noqa: E402

KINDS = {each.count: each for each in (ApacheKafka, KafkaCluster)}


def main() -> None:
    parser = argparse.ArgumentParser(
        "scripts/kafka", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, choices=KINDS, default=1, help="1, the default, or 3")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        libraries()
        with tempfile.TemporaryDirectory(prefix="partbox-kafka-", ignore_cleanup_errors=True) as folder:
            _run(KINDS[given.nodes](Path(folder)))
    except OutOfReach as reason:
        sys.exit(str(reason))
    except KeyboardInterrupt:
        pass


def _run(kafka: ApacheKafka) -> None:
    try:
        kafka.start()
        print(kafka.url)
        print(f"the tools: java -cp '{libraries()}/*' org.apache.kafka.tools.TopicCommand", file=sys.stderr)
        print(f"           --bootstrap-server {kafka.servers} --list", file=sys.stderr, flush=True)
        signal.pause()
    finally:
        kafka.kill()


if __name__ == "__main__":
    main()
