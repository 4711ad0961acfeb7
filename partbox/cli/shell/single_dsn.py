"""A command class that refuses a second `--dsn`, where a command works on one database. By default the last value would
win, and the first be dropped."""

from typing import Any

from typer.core import TyperCommand

OPTION = "--dsn"


class SingleDsnCommand(TyperCommand):
    """A command whose option `--dsn` may be typed once, unless it is declared as repeatable."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of the command. Raise a usage error if `--dsn` was typed twice."""
        own = args[: args.index("--") if "--" in args else None]
        has_one = any(OPTION in each.opts and not getattr(each, "multiple", False) for each in self.params)
        if has_one and sum(arg.partition("=")[0] == OPTION for arg in own) > 1:
            ctx.fail(f"{OPTION} was given more than once: this command works on one database, so leave one of them out")
        return super().parse_args(ctx, args)
