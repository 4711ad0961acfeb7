"""Commands that are forked."""

from forked_commands import forks

__all__ = ["forks"]
