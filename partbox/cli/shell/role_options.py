"""The roles that `init` and `migrate` grant what they need."""

from dataclasses import dataclass
from typing import Annotated

import typer

from partbox.cli.shell.options import option
from partbox.db.schema.grants import Roles
from partbox.text.printing import printable


@dataclass(frozen=True, slots=True)
class RoleOptions:
    """The roles that publish, and those that work."""

    publisher_role: Annotated[list[str] | None, option("ROLE", "Grant a role what publishing needs; repeatable.")] = (
        None
    )
    worker_role: Annotated[list[str] | None, option("ROLE", "Grant a role what workers need; repeatable.")] = None

    @property
    def roles(self) -> Roles:
        return Roles(tuple(self.publisher_role or ()), tuple(self.worker_role or ()))


def print_granted(roles: Roles) -> None:
    """Print them in one line; nothing if there are none."""
    said = [f"to publish: {', '.join(roles.publishers)}"] * bool(roles.publishers)
    said += [f"to work: {', '.join(roles.workers)}"] * bool(roles.workers)
    if said:
        typer.echo(printable(f"granted {'; '.join(said)}"))
