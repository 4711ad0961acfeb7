"""Commands of partbox as commands of manage.py, with the same options, which partbox itself parses."""

import argparse
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connections

from partbox.cli import command, main


class ForwardedCommand(BaseCommand):
    """A Django management command that passes its options on to the partbox command `name`.

    `target` is passed as well if the partbox command takes a target."""

    name: str
    target: str | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        for each in _list_options(self.name):
            shown = argparse.SUPPRESS if each.hidden else (each.help or "").replace("%", "%%")
            many: dict[str, Any] = {"action": "append"} if each.multiple else {}
            if each.is_flag:
                for option in (*each.opts, *each.secondary_opts):
                    parser.add_argument(
                        option, dest=_format_dest(each), action="append_const", const=option, help=shown
                    )
            else:
                parser.add_argument(*each.opts, dest=_format_dest(each), metavar=each.metavar, help=shown, **many)

    def handle(self, *_: Any, **options: Any) -> None:
        # The checks have opened connections, and the processes open their own.
        connections.close_all()
        try:
            main(self.arguments(options))
        # partbox has printed the error.
        except SystemExit as end:
            if end.code:
                raise

    def arguments(self, options: dict[str, Any]) -> list[str]:
        """Convert the options of the Django command into the command line for partbox."""
        words = [self.name, *([self.target] if self.target else [])]
        for each in _list_options(self.name):
            given = options.get(_format_dest(each))
            if each.is_flag:
                words += given or []
            elif given is not None:
                words += [f"{each.opts[0]}={value}" for value in (given if each.multiple else [given])]
        return words


def _list_options(name: str) -> list[Any]:
    found = command().commands[name].params
    return [each for each in found if each.param_type_name == "option" and not {"--help", "-h"} & {*each.opts}]


def _format_dest(option: Any) -> str:
    return f"partbox_{option.name}"
