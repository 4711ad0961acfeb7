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
# libpq's quotes of a connection string that it cannot read: any part of it.
_UNREAD = re.compile(
    r'((?:percent-encoded (?:token|value): |missing "=" after |spaces found in |invalid connection option '
    r'|URI query parameter: |in URI: |\(expected ":" or "/"\): |invalid port number: ))"[^\n]*'
)

_TOKEN = re.compile(r"\S+")
_OF_WEBHOOK = re.compile(r"whsec_[A-Za-z0-9+/_-]+=*")
# A name without a password may be a token, as NATS has them.
_NAME_ALONE = re.compile(r"^([A-Za-z][\w+.-]*://)[^:/@\s]+@")
_TELLING = re.compile(r"pass|secret|token|key|sig|auth|credential|pem|jaas", re.IGNORECASE)


def masked(text: str) -> str:
    """`text` without the secrets of webhooks, and the passwords of connection strings, in it.

    Those are found in the form of a URL or of key=value pairs.
    """
    pairs = _AS_PAIR.sub(rf"\1{MASK}", _TOKEN.sub(_without_password, text))
    return _OF_WEBHOOK.sub(MASK, _UNREAD.sub(rf"\1{MASK}", pairs))


def masked_url(url: str) -> str:
    """The URL of a broker or a webhook without its password, a token instead of one, and secrets in its query.

    Of a webhook's query nothing is shown, for its names are free.
    """
    place, mark, query = _NAME_ALONE.sub(rf"\1{MASK}@", masked(url)).partition("?")
    is_webhook = place.lower().startswith("http")
    return place + mark + "&".join(_without_value(each, is_webhook) for each in query.split("&"))


def _without_value(pair: str, always: bool) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}={MASK}" if equals and (always or _TELLING.search(name)) else MASK if always and pair else pair


def _without_password(token: re.Match[str]) -> str:
    """The token without its password. Behind its last "@" no match can be, and looking for one takes quadratic time."""
    end = token[0].rfind("@") + 1
    return _IN_URL.sub(rf"\1:{MASK}@", token[0][:end]) + token[0][end:]
