"""Checks the arguments of this process before any command, and hides secrets among them from `ps`."""

import ctypes
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from partbox.errors import PartboxError
from partbox.text.dsn import mask_dsn
from partbox.text.secrets import MASK, mask_secrets, mask_url

# Indexes of arg_start and arg_end in /proc/self/stat, counted from the field after the name.
_ARG_START, _ARG_END = 45, 46


def check_encoding(arguments: Sequence[str]) -> None:
    """Raise PartboxError if a command-line argument is not valid UTF-8."""
    # Python passes its bytes on as surrogates, which cannot be stored.
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise PartboxError(f"argument {argument!a} is not UTF-8 (a lone surrogate): write it as text") from None


def hide_secrets() -> None:
    """Overwrite the passwords and tokens in this process's command line, so that `ps` does not show them (Linux)."""
    # Python has copied the arguments by now. `ps` could show them up to this call, so secrets belong into the
    # environment.
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        if 0 < start < end:
            memory = (ctypes.c_char * (end - start)).from_address(start)
            arguments = memory.raw.split(b"\0")
            memory.raw = b"\0".join(map(hide_secret, arguments, [b"", *arguments]))


def hide_secret(argument: bytes, before: bytes = b"") -> bytes:
    """Mask the secrets in a command-line argument without changing its length in bytes."""
    # `before` is the preceding argument.
    said = os.fsdecode(argument)
    option, equals, value = said.partition("=")
    if (seen := _SECRET.get(os.fsdecode(before))) is not None:
        said = seen(said)
    elif equals and (seen := _SECRET.get(option)) is not None:
        said = f"{option}={seen(value)}"
    text = os.fsencode(mask_secrets(said))
    return argument if text == argument else text.ljust(len(argument))[: len(argument)]


# The function that masks the value of each option.
_SECRET: dict[str, Callable[[str], str]] = {
    "--dsn": mask_dsn,
    "--to": mask_url,
    **dict.fromkeys(("--relay", "--webhook-secret", "--http-token"), lambda _: MASK),
}
