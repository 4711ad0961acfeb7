"""The limits of a worker's handlers: as they are declared, and as they are given while it runs."""

from collections.abc import Mapping

from partbox.protocol.limits import Limit


class HandlerLimits:
    """By the handlers' names. `declared` has those that declare one."""

    def __init__(self, declared: Mapping[str, Limit]) -> None:
        self.declared = dict(declared)
        self.in_force = dict(declared)

    def give(self, others: Mapping[str, Limit]) -> None:
        """Have these in force from now on, and of every handler that they do not name the declared one.

        `Limit()` lifts what is declared. One without a `by` keeps the declared one. Any thread.
        """
        declared = self.declared
        given = {
            name: Limit(each.rate, each.at_once, each.by or declared.get(name, each).by)
            for name, each in others.items()
        }
        self.in_force = declared | given
