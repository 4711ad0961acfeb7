"""Of two kits that come to the same library and driver, one is tried at every change."""

from typing import Any

import pytest
from kits import LIKE_ANOTHER


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        given: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
        if any(isinstance(each, type) and each in LIKE_ANOTHER for each in given.values()):
            item.add_marker("thorough")
