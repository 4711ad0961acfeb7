"""Publishing: write events as records inside the caller's transaction, on connections of various libraries."""

from partbox.publish.adapter import Adapter, AsyncAdapter
from partbox.publish.bell import Bell, EmbeddedWorkers
from partbox.publish.hooks import HookMoment, PublishHooks
from partbox.publish.integrations import register
from partbox.publish.publisher import Publisher
from partbox.publish.transaction_scope import TransactionScope

__all__ = [
    "Adapter",
    "AsyncAdapter",
    "Bell",
    "EmbeddedWorkers",
    "HookMoment",
    "PublishHooks",
    "Publisher",
    "TransactionScope",
    "register",
]
