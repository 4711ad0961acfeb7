"""Tools for the tests of applications: a database for each test, and delivery of its published events on demand.

A test uses a `Kit`, from the pytest fixture `partbox_kit`, a `PartboxTestCase`, or for Django the mixin in
`partbox.testing.django`. Hypothesis strategies are in `partbox.testing.strategies`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partbox.testing.cases import PartboxAsyncTestCase, PartboxTestCase
    from partbox.testing.delivered import delivered
    from partbox.testing.kit import Kit, RecordingSink
    from partbox.testing.outcomes import Drained, Settled
    from partbox.testing.published import Published
    from partbox.testing.urls import url_of

__all__ = [
    "Drained",
    "Kit",
    "PartboxAsyncTestCase",
    "PartboxTestCase",
    "Published",
    "RecordingSink",
    "Settled",
    "delivered",
    "url_of",
]

_MODULES = {
    "Drained": "outcomes",
    "Kit": "kit",
    "PartboxAsyncTestCase": "cases",
    "PartboxTestCase": "cases",
    "Published": "published",
    "RecordingSink": "kit",
    "Settled": "outcomes",
    "delivered": "delivered",
    "url_of": "urls",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
