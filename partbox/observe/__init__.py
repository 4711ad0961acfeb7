"""Observer protocol, logs, metrics, traces and health checks of an outbox, all from within its processes."""

from partbox.observe.observer import QUICK, Answer, Load, Observer, Started, Turn
from partbox.observe.observers import Observers

__all__ = ["QUICK", "Answer", "Load", "Observer", "Observers", "Started", "Turn"]
