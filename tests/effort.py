"""How many examples Hypothesis tries: one in four of them, and all with `--soak` or `--hypothesis-profile=default`.

However slow the machine is, no example fails for the time that it takes.
"""

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

FULL = 100
"""Examples of Hypothesis's own profile."""


def examples(full: int) -> int:
    """How many of so many this run is to try."""
    return max(1, full * min(settings.default.max_examples, FULL) // FULL)


def pytest_configure(config: pytest.Config) -> None:
    full = _in_full(config) or config.getoption("--hypothesis-profile")
    settings.register_profile(
        "full" if full else "quick",
        max_examples=FULL if full else FULL // 4,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("full" if full else "quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What varies its examples belongs to both runs."""
    for item in items if _in_full(config) else ():
        if is_hypothesis_test(getattr(item, "obj", None)) or hasattr(getattr(item, "module", None), "examples"):
            item.add_marker("soak")


def _in_full(config: pytest.Config) -> bool:
    return bool(config.getoption("--soak", False))
