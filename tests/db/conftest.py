"""Fewer examples than with `--soak`; commands that are forked."""

from effort import pytest_collection_modifyitems, pytest_configure
from forked import forks

__all__ = ["forks", "pytest_collection_modifyitems", "pytest_configure"]
