"""`scripts/bench --relay` runs; what it measures is not judged here."""

import re
import subprocess
import sys

import pytest
from broker_redis import Redis

RATE = r"[\d,]+/s"


def bench(dsn: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "partbox_lab.ratios", "--dsn", dsn, "--relay", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.thorough
def test_the_relay_is_measured_beside_the_brokers_own_library(dsn, tmp_path):
    Redis(tmp_path)  # skips where it is not installed
    ran = bench(dsn, "redis", "--events", "50", "--aggregates", "5", "--rounds", "1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(rf"redis +relay +{RATE} +CPU ", ran.stdout)
    assert re.search(rf"redis +sending directly +{RATE} +CPU ", ran.stdout)
    assert re.search(r"relay / sending directly, redis: +[\d.]+ \(budget: at least 0.70, (met|MISSED)\)", ran.stdout)


@pytest.mark.thorough
def test_a_broker_that_is_not_installed_is_skipped_with_a_message(dsn, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    ran = bench(dsn, "redis")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "redis        skipped: redis-server is not installed" in ran.stdout


def test_an_unknown_broker_is_an_error_that_names_the_known_ones(dsn):
    ran = bench(dsn, "rediz")
    assert ran.returncode != 0
    assert "choose from 'kafka', 'apache-kafka', 'rabbitmq', 'nats', 'redis', 'webhook', 'sqs'" in ran.stderr


@pytest.mark.soak
@pytest.mark.usefixtures("apache")
def test_apache_kafkas_own_tool_is_measured_on_the_same_broker(dsn):
    ran = bench(dsn, "apache-kafka", "--events", "5000", "--aggregates", "5", "--rounds", "1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(rf"apache-kafka +kafka-producer-perf-test +{RATE} +CPU ", ran.stdout)
    assert re.search(r"relay / kafka-producer-perf-test, apache-kafka: +[\d.]+", ran.stdout)
