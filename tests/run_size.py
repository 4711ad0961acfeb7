"""One in four of Hypothesis's examples, and of the seconds of what goes on for some time: all with `--soak`.

All examples also with `--hypothesis-profile=default`. No example fails for the time that it takes.
"""

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

FULL = 100
"""Examples of Hypothesis's own profile."""


def examples(full: int) -> int:
    """The number of examples that this run is to try, of so many."""
    return max(1, full * min(settings.default.max_examples, FULL) // FULL)


def seconds(full: float) -> float:
    """The seconds that this run spends on something that takes so many at full size."""
    return full * min(settings.default.max_examples, FULL) / FULL


SIZES = (examples, seconds)


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
    """Tests of both runs: those of Hypothesis, and of modules that ask here for their size."""
    for item in items if _in_full(config) else ():
        module = getattr(item, "module", None)
        asks = any(getattr(module, size.__name__, None) is size for size in SIZES)
        if asks or is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("soak")


def _in_full(config: pytest.Config) -> bool:
    return bool(config.getoption("--soak", False))
