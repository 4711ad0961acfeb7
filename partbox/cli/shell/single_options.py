"""A command class that refuses an option typed twice. By default the last value would win, and the first be dropped."""

from collections import Counter
from typing import Any

from typer.core import TyperCommand, TyperOption


class SingleOptionCommand(TyperCommand):
    """A command whose options may be typed once each, unless an option is declared as repeatable."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of the command. Raise a usage error if an option with one value was typed twice."""
        typed = Counter(arg.partition("=")[0] for arg in args[: args.index("--") if "--" in args else None])
        for each in self.params:
            has_one_value = isinstance(each, TyperOption) and not (each.is_flag or each.multiple)
            if has_one_value and sum(typed[name] for name in each.opts) > 1:
                ctx.fail(f"{each.opts[0]} was given more than once: this command takes one")
        return super().parse_args(ctx, args)
