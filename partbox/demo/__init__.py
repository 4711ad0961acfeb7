"""The main job, live: a shop that publishes, worker processes that deliver, kills and joins, and an audit."""

from partbox.demo.play import Play, perform
from partbox.demo.summary import Summary

__all__ = ["Play", "Summary", "perform"]
