"""How many examples Hypothesis tries: two in five of them, and all with `--soak` or `--hypothesis-profile=default`.

A folder's conftest imports the hooks of this module before its tests are imported.
"""

import pytest
from hypothesis import is_hypothesis_test, settings

QUICK = "quick"
FULL = 100
"""Examples of Hypothesis's own profile."""


def examples(full: int) -> int:
    """How many of so many this run is to try."""
    return max(1, full * min(settings.default.max_examples, FULL) // FULL)


def pytest_configure(config: pytest.Config) -> None:
    if _in_full(config) or config.getoption("--hypothesis-profile"):
        return
    settings.register_profile(QUICK, max_examples=FULL * 2 // 5)
    settings.load_profile(QUICK)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What varies its examples belongs to both runs."""
    for item in items if _in_full(config) else ():
        if is_hypothesis_test(getattr(item, "obj", None)) or hasattr(getattr(item, "module", None), "examples"):
            item.add_marker("soak")


def _in_full(config: pytest.Config) -> bool:
    return bool(config.getoption("--soak", False))
