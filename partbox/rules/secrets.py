"""Takes the secrets out of a text before anybody sees it."""

import re

MASK = "***"

# From the beginning of a word only: else a long one takes quadratic time, 7 s for 20,000 characters.
# Greedy up to the last "@": an unescaped "@" or "/" in a password must not leave its tail behind.
_IN_URL = re.compile(r"((?<!\w)\w+://[^:/@\s]*):\S*@")
_AS_PAIR = re.compile(r"""((?<!\w)\w*password\s*=\s*)('(?:\\.|[^'\\])*'?|[^\s&'"]+)""", re.IGNORECASE)


_TOKEN = re.compile(r"\S+")


def masked(text: str) -> str:
    """`text` without the passwords of the connection strings in it, in the form of a URL or of key=value pairs."""
    return _AS_PAIR.sub(rf"\1{MASK}", _TOKEN.sub(_without_password, text))


def _without_password(token: re.Match[str]) -> str:
    """What follows the last "@" cannot be part of a match, and looking for one there takes quadratic time."""
    end = token[0].rfind("@") + 1
    return _IN_URL.sub(rf"\1:{MASK}@", token[0][:end]) + token[0][end:]
