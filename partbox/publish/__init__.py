"""Publishing: events become records inside the caller's transaction."""

from partbox.publish.hooks import Hooks, Moment
from partbox.publish.publisher import Publisher
from partbox.publish.scope import Scope
from partbox.publish.sleepers import Sleepers

__all__ = ["Hooks", "Moment", "Publisher", "Scope", "Sleepers"]
