"""The arguments of this process, before any command sees them: readable ones only, and no password for `ps` to show."""

import ctypes
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from partbox.errors import PartboxError
from partbox.text.dsn import shown
from partbox.text.secrets import MASK, masked, masked_url

_ARG_START, _ARG_END = 45, 46  # in /proc/self/stat, counted from after the name


def check(arguments: Sequence[str]) -> None:
    """PartboxError for one that is not text: bytes that are not UTF-8 arrive as surrogates, which cannot be stored."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise PartboxError(f"argument {argument!a} is not UTF-8 (a lone surrogate): write it as text") from None


def hide_secrets() -> None:
    """Passwords, tokens and secrets among the arguments become `***` where others see them (Linux).

    Python has its own copy by now. Until here `ps` could show them: they are better left to the environment.
    """
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        if 0 < start < end:
            memory = (ctypes.c_char * (end - start)).from_address(start)
            arguments = memory.raw.split(b"\0")
            memory.raw = b"\0".join(map(hide_secret, arguments, [b"", *arguments]))


def hide_secret(argument: bytes, before: bytes = b"") -> bytes:
    """The argument that follows `before`, without passwords, in as many bytes."""
    said = os.fsdecode(argument)
    option, equals, value = said.partition("=")
    if (seen := _SECRET.get(os.fsdecode(before))) is not None:
        said = seen(said)
    elif equals and (seen := _SECRET.get(option)) is not None:
        said = f"{option}={seen(value)}"
    text = os.fsencode(masked(said))
    return argument if text == argument else text.ljust(len(argument))[: len(argument)]


_SECRET: dict[str, Callable[[str], str]] = {
    "--dsn": shown,
    "--to": masked_url,
    **dict.fromkeys(("--relay", "--webhook-secret", "--http-token"), lambda _: MASK),
}
"""By option: its value as others may see it."""
