"""Observing an outbox from within its processes: the observer protocol, logs, metrics, traces and health checks."""

from partbox.observe.observer import QUICK, Answer, Load, Observer, Started, Turn
from partbox.observe.observers import Observers

__all__ = ["QUICK", "Answer", "Load", "Observer", "Observers", "Started", "Turn"]
