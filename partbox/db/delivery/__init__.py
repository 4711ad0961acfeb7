"""Statements of worker processes: records, cursors, parked rows, instances and their heartbeats."""
