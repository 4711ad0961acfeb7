"""Publishing: events become records inside the caller's transaction, on the connection of whatever library."""

from partbox.publish.adapter import Adapter, AsyncAdapter
from partbox.publish.bell import Bell
from partbox.publish.hooks import Moment, PublishHooks
from partbox.publish.integrations import register
from partbox.publish.publisher import Publisher
from partbox.publish.scope import Scope
from partbox.publish.sleepers import Sleepers

__all__ = [
    "Adapter",
    "AsyncAdapter",
    "Bell",
    "Moment",
    "PublishHooks",
    "Publisher",
    "Scope",
    "Sleepers",
    "register",
]
