"""The main job, live: a shop that publishes, worker processes that deliver, kills and joins, and an audit."""

from partbox.demo.run import DemoPlan, run_demo
from partbox.demo.summary import Summary

__all__ = ["DemoPlan", "Summary", "run_demo"]
