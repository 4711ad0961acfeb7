"""Typed tasks: functions that are published as events and called by workers."""

from partbox.tasks.arguments import supplied
from partbox.tasks.task import Task, task

__all__ = ["Task", "supplied", "task"]
