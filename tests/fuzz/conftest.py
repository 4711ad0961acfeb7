"""Fewer examples than with `--soak`."""

from effort import pytest_collection_modifyitems, pytest_configure

__all__ = ["pytest_collection_modifyitems", "pytest_configure"]
