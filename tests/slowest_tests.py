"""The run ends with its slowest tests, and says which of them belong into the soak.

It only says so: how long a test takes depends on the machine and on what else runs there, and no run fails for that. A
test's time is that of its call and of its own setup; what fixtures of a wider scope make for other tests too, such as
the server, is not. On a machine with more to do than a run has tests at once, CROWD for each processor, all takes
longer, so the limit grows with the load.
"""

import os
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

SECONDS = 20.0
SLOWEST = 10
CROWD = 2.0
SHARED, LOAD = "seconds for other tests too", "load of the machine"


@dataclass(slots=True)
class Taken:
    """The time that a test has taken, and the load of the machine meanwhile."""

    seconds: float = 0.0
    load: float = 0.0

    @property
    def limit(self) -> float:
        return SECONDS * max(1.0, self.load / (CROWD * (os.cpu_count() or 1)))

    @property
    def too_long(self) -> bool:
        return self.seconds > self.limit


@dataclass(eq=False)
class Pace:
    """Adds up what tests take; lives where the reports of all test processes come together."""

    judged: bool
    taken: dict[str, Taken] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            given = dict(report.user_properties)  # empty of a test whose process died
            taken = self.taken.setdefault(report.nodeid, Taken())
            taken.seconds += report.duration - (float(given.get(SHARED, 0)) if report.when == "setup" else 0)
            taken.load = max(taken.load, float(given.get(LOAD, 0)))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        slowest = sorted(self.taken.items(), key=lambda each: -each[1].seconds)[:SLOWEST]
        if slowest:
            terminalreporter.section(f"the slowest {len(slowest)}")
        for name, taken in slowest:
            terminalreporter.line(f"{taken.seconds:6.1f} s  {name}")
        for name, taken in self.too_long():
            terminalreporter.line(
                f"TOO LONG: {name} took {taken.seconds:.1f} s. A test has {SECONDS:g} s ({taken.limit:.0f} s under the"
                f" load of {taken.load:.1f}): make a small form of it, and mark the full one `soak`.",
                yellow=True,
            )

    def too_long(self) -> list[tuple[str, Taken]]:
        return [each for each in self.taken.items() if self.judged and each[1].too_long]


@dataclass(eq=False)
class Shared:
    """Adds up, in a test process, the seconds that a test's setup took for other tests too."""

    seconds: float = 0.0
    making: bool = False

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        if self.making or fixturedef.scope == "function":
            return (yield)
        self.making, began = True, time.perf_counter()
        try:
            return (yield)
        finally:
            self.making = False
            self.seconds += time.perf_counter() - began

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        seconds, self.seconds = self.seconds, 0.0
        report.user_properties += [(SHARED, seconds), (LOAD, os.getloadavg()[0])]
        return report


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Shared(), "pace of a process")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Pace(judged=not config.getoption("--soak")), "pace of the run")
