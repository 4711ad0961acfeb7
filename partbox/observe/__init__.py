"""What can be seen of an outbox from within its processes: the observer protocol, and the observers that ship."""

from partbox.observe.observer import QUICK, Load, Observer, Started, Turn
from partbox.observe.observers import Observers

__all__ = ["QUICK", "Load", "Observer", "Observers", "Started", "Turn"]
