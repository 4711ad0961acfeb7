"""`scripts/kafka` runs Apache Kafka until it is told to end, and leaves nothing behind."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

PROGRAM = Path(__file__).resolve().parents[2] / "scripts" / "kafka.py"


def test_the_kafka_script_without_java_says_so_in_one_line(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    ran = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "Apache Kafka is out of reach: it needs Java 17 or newer\n"


@pytest.mark.soak
@pytest.mark.usefixtures("apache")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_kafka_script_prints_an_address_that_takes_messages_and_removes_everything_at_its_end(
    tmp_path, monkeypatch, number
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as run:
        try:
            assert run.stdout is not None
            scheme, _, servers = run.stdout.readline().strip().partition("://")
            producer = Producer({"bootstrap.servers": servers})
            producer.produce("orders", b"1")
            assert (scheme, producer.flush(60)) == ("kafka", 0)
        finally:
            run.send_signal(number)
        assert run.wait(120) == 0
    assert [*tmp_path.iterdir()] == []
