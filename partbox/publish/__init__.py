"""Publishing: events become records inside the caller's transaction."""

from partbox.publish.publisher import Publisher

__all__ = ["Publisher"]
