"""Takes the secrets out of a text before anybody sees it."""

import re

MASK = "***"

SECRET = re.compile(r"\w*password|\w*client_secret|scram_\w*key|passfile", re.IGNORECASE)
"""The keys of a connection string whose values nobody may see."""

# From the beginning of a word only: else a long one takes quadratic time, 7 s for 20,000 characters.
# Greedy up to the last "@": an unescaped "@" or "/" in a password must not leave its tail behind.
_IN_URL = re.compile(r"((?<!\w)\w+://[^:/@\s]*):\S*@")
_AS_PAIR = re.compile(
    r"""((?<!\w)(?:\w*password|\w*client_secret|scram_\w*key|passfile)\s*=\s*)"""
    r"""('(?:\\.|[^'\\])*'?|(?:[^\s&'"]|['"](?=\w))+)""",
    re.IGNORECASE,
)
# What libpq quotes of a connection string that it cannot read, which may be any part of it.
_UNREAD = re.compile(
    r'((?:percent-encoded (?:token|value): |missing "=" after |spaces found in |invalid connection option '
    r'|URI query parameter: |in URI: |\(expected ":" or "/"\): |invalid port number: ))"[^\n]*'
)

_TOKEN = re.compile(r"\S+")


def masked(text: str) -> str:
    """`text` without the passwords of the connection strings in it, in the form of a URL or of key=value pairs."""
    return _UNREAD.sub(rf"\1{MASK}", _AS_PAIR.sub(rf"\1{MASK}", _TOKEN.sub(_without_password, text)))


def _without_password(token: re.Match[str]) -> str:
    """What follows the last "@" cannot be part of a match, and looking for one there takes quadratic time."""
    end = token[0].rfind("@") + 1
    return _IN_URL.sub(rf"\1:{MASK}@", token[0][:end]) + token[0][end:]
