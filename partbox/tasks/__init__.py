"""Typed tasks: functions that are published as events, and called by workers."""

from partbox.tasks.task import Fields, Task, task

__all__ = ["Fields", "Task", "task"]
