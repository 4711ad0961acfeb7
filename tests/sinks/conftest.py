"""A broker of each kind for all tests of a process, and in it a place of its own for each test."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from brokers import Broker, Received
from kafka_libraries import OutOfReach, libraries
from kinds import BROKERS, SOAK, SPECIAL


@dataclass(frozen=True)
class Place:
    """What a test has of a broker: topics that nobody else has. `template` makes them."""

    broker: Broker
    template: str
    topics: tuple[str, ...]

    def prepare(self) -> None:
        self.broker.prepare(*self.topics)

    def all(self) -> list[Received]:
        """What arrived so far; those of a topic in their order."""
        return self.broker.all(*self.topics)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tests that a fixture skips for one reason are one line of the summary: a broker is missing for dozens of them."""
    report = yield
    if report.when == "setup" and report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = (__file__, 0, report.longrepr[2])
    return report


@pytest.fixture(scope="session")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Broker]]:
    running: dict[str, Broker] = {}
    yield running
    for broker in running.values():
        broker.kill()


KINDS = [pytest.param(name, marks=[pytest.mark.soak] * (name in SOAK)) for name in BROKERS if name not in SPECIAL]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker(kind: str, _running: dict[str, Broker], tmp_path_factory: pytest.TempPathFactory) -> Broker:
    """A server of that kind, which runs; a test that ends it starts it again."""
    if kind not in _running:
        broker = BROKERS[kind](Path(tmp_path_factory.mktemp(kind)))
        broker.start()
        _running[kind] = broker
    return _running[kind]


@pytest.fixture
def nowhere(broker: Broker) -> Iterator[Place]:
    """A place that the broker does not have yet."""
    prefix = f"partbox-test-{uuid4().hex[:8]}"
    topics = (f"{prefix}-order", f"{prefix}-__global__")
    yield Place(broker, f"{prefix}-{{aggregate_type}}", topics)
    broker.remove(*topics)


@pytest.fixture
def place(nowhere: Place) -> Place:
    nowhere.prepare()
    return nowhere


@pytest.fixture
def apache() -> Path:
    """The libraries of Apache Kafka; skips the test where they are out of reach."""
    try:
        return libraries()
    except OutOfReach as reason:
        pytest.skip(str(reason))


@pytest.fixture
def faults(broker: Broker) -> None:
    """For tests that stop the broker."""
    if broker.no_faults:
        pytest.skip(broker.no_faults)
