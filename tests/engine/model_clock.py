"""The clock of a model: one for the server and all processes, and it stands unless the test moves it."""

import sys
import time
from typing import Any

import pytest
from fibers import Between, Fiber, between, pause

from partbox.platform import boottime

SLEEPS = Between("sleeps")


class ModelClock:
    """Seconds since 2000, for the server as for processes. It has the functions of `time` that a worker calls."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        if Fiber.running is not None and Fiber.running.looks:
            between("looks at the clock")
        return self.now

    def time(self) -> float:
        return self.monotonic()

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        pause(SLEEPS)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Be the clock of every module of the worker, however it has imported its own."""
        ours: dict[int, Any] = {
            id(time): self, id(time.monotonic): self.monotonic, id(time.time): self.time, id(boottime): self.monotonic,
        }  # fmt: skip
        for name, module in list(sys.modules.items()):
            if name.startswith("partbox.worker"):
                for attribute, value in list(vars(module).items()):
                    if id(value) in ours:
                        patch.setattr(module, attribute, ours[id(value)])
