"""Commands that are forked."""

from forked import forks

__all__ = ["forks"]
