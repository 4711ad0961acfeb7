"""Typed tasks: functions that are published as events and called by workers."""

from partbox.tasks.task import Task, task

__all__ = ["Task", "task"]
