"""Monitoring in Python: counts, partitions, processes, and records a page at a time."""

from partbox.operations.stats.stats import Stats

__all__ = ["Stats"]
