"""The privileges that a command has granted."""

import typer

from partbox.cli.shell.output import printable
from partbox.db.schema.grants import Roles


def print_granted(roles: Roles) -> None:
    """Print them in one line; nothing if there are none."""
    if roles:
        said = [f"to publish: {', '.join(roles.publishers)}"] * bool(roles.publishers)
        said += [f"to work: {', '.join(roles.workers)}"] * bool(roles.workers)
        typer.echo(printable(f"granted {'; '.join(said)}"))
