"""Usage errors as one line with the fault and the remedy."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Any, NamedTuple

import typer

from partbox.text.printing import shorten_line
from partbox.text.secrets import mask_secrets

# The class of click, which newer versions of typer contain.
UsageError: Any = typer.BadParameter.__mro__[1]

LONGEST = 500  # characters
_EXAMPLE = re.compile(r"^Example: (.+)$", re.MULTILINE)
_NO_COMMAND = re.compile(r"No such command '(.*?)'\.", re.DOTALL)
_TOO_MANY = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", re.DOTALL)


class TypedCommand(NamedTuple):
    """The command or group that the user's command line names, for use in error messages.

    Words that name no command are left out. `path` is the full name, such as "partbox dead list"."""

    command: Any
    path: str

    @property
    def command_words(self) -> str:
        return self.path.partition(" ")[2] or "partbox"

    @property
    def help_command(self) -> str:
        return f"`{self.path} --help`"

    @property
    def example_text(self) -> str:
        """An example of the typed command for an error message, or a reference to the command's help."""
        # The example comes from the command's help. The reference is returned if the help has no example.
        found = _EXAMPLE.search(self.command.help or "")
        return f"for example `{found[1]}`" if found else f"{self.help_command} says more"


def format_usage_error(error: Any, arguments: Sequence[str], root: Any) -> str:
    """Describe a usage error, such as an unknown option, and its remedy in one line."""
    # `root` is the whole command line.
    said = _describe_error(error, _find_command(arguments, root), arguments)
    return shorten_line(mask_secrets(" ".join(said.split())), LONGEST)


def is_help(error: Any) -> bool:
    """Return True if a usage error only means that no arguments were typed."""
    # The text of the error is then the help.
    return type(error).__name__ == "NoArgsIsHelpError"


def _find_command(arguments: Sequence[str], root: Any) -> TypedCommand:
    command, path = root, "partbox"
    for word in arguments:
        if word in getattr(command, "commands", ()):
            command, path = command.commands[word], f"{path} {word}"
        elif not word.startswith("-"):
            break
    return TypedCommand(command, path)


def _describe_error(error: Any, at: TypedCommand, arguments: Sequence[str]) -> str:
    message = str(error.message).rstrip(".")
    match type(error).__name__:
        case "NoSuchOption":
            close = get_close_matches(error.option_name, error.possibilities or (), n=1, cutoff=0.0)
            remedy = f"did you mean {close[0]}?" if close else f"{at.help_command} lists the options there are"
            return f"{at.command_words} has no option {error.option_name}: {remedy}"
        case "MissingParameter":
            return f"{at.command_words} needs {_format_parameter(error)}: {at.example_text}"
        case "BadParameter" if error.param is not None:
            name = _format_parameter(error)
            return f"{name}{_find_typed_value(name, arguments)} {_simplify_reason(message)}: {at.example_text}"
        case "BadParameter":
            return message
        case "BadOptionUsage" if "requires an argument" in message:
            return f"{error.option_name} needs a value: {at.help_command} says which"
    if found := _NO_COMMAND.match(error.message):
        return f"there is no command `{at.path} {found[1]}`: {_suggest_command(at, found[1])}"
    if found := _TOO_MANY.match(error.message):
        return f"{at.command_words} takes no argument {found[1]!r} there: {at.help_command} says what it takes"
    return f"{at.command_words}: {message}: {at.help_command} says what it takes"


def _format_parameter(error: Any) -> str:
    if error.param is None:
        return str(error.param_hint or "an argument")
    return str(error.param.opts[0] if error.param.param_type_name == "option" else error.param.metavar)


def _find_typed_value(option: str, arguments: Sequence[str]) -> str:
    given = [after for before, after in pairwise(arguments) if before == option]
    given += [word.removeprefix(f"{option}=") for word in arguments if word.startswith(f"{option}=")]
    return f" {given[-1]!r}" if given else ""


def _simplify_reason(message: str) -> str:
    # The reason is returned without the value. Reasons of pydantic repeat it, and those of click do not.
    if message.startswith("Input should be "):
        return "must be " + message.removeprefix("Input should be ").partition(",")[0]
    return f"is wrong: {message}"


def _suggest_command(at: TypedCommand, typed: str) -> str:
    # It suggests commands of that name in other groups, or similar names in this group.
    group = at.command.commands
    near = [f"{at.path} {name}" for name in get_close_matches(typed, group, n=2)]
    elsewhere = [f"{at.path} {name} {typed}" for name, each in group.items() if typed in getattr(each, "commands", ())]
    found = " or ".join(f"`{each}`" for each in (elsewhere or near))
    return f"did you mean {found}?" if found else f"{at.help_command} lists the commands"
