"""Apache Kafka's kafka-producer-perf-test in a Java process, with messages as large as the relay's."""

import re
import resource
import subprocess
import sys
from urllib.parse import urlsplit

from partbox_lab.ratios import TESTS, direct

sys.path[:0] = [str(TESTS / "sinks"), str(TESTS)]

from kafka_libraries import libraries  # noqa: E402
from kafka_nodes import LARGE  # noqa: E402

RATE = re.compile(r"([\d.]+) records/sec")


def seconds(url: str, template: str, dsn: str, warm: int) -> tuple[float, float]:
    """Return the seconds of as many messages as the log has after `warm`, and the CPU seconds of the Java process. The
    tool first sends a tenth of the messages uncounted. The JVM is then as warm as Python is from the start."""
    events = direct.events(dsn, template)
    count, keys = len(events) - warm, len({event.aggregate_id for event in events})
    options = {
        "bootstrap-server": urlsplit(url).netloc, "topic": events[0].topic, "throughput": -1, "num-records": count,
        "warmup-records": count // 10, "record-size": _size(events[0]), "record-key-range": keys,
        "key-distribution": "random", "command-property": "linger.ms=5",
    }  # fmt: skip
    arguments = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    before = _used()
    command = ["java", *LARGE, "-cp", f"{libraries()}/*", "org.apache.kafka.tools.ProducerPerformance", *arguments]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return count / float(RATE.findall(said)[-1]), _used() - before


def _size(event: direct.DirectEvent) -> int:
    """Return the bytes of the value and the headers of an event. The tool sends values only."""
    return len(event.value) + sum(len(name) + len(text) for name, text in event.bound("ce_", "content-type").items())


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
