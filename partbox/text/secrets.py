"""Replaces secrets in texts and headers by `***`, for logs, stored errors, commands and the live page. A secret is
recognized by its name (`password=…`, `"token": "…"`) or by its form (`Bearer …`, a JWT, a private key)."""

import re
from collections.abc import Mapping
from typing import Any, Final

MASK: Final = "***"

# The end of the name of a secret, as in `sslpassword`, `X-Amz-Security-Token`, `aws_secret_access_key`.
_NAMED: Final = (
    r"(?:pass(?:word|wd|phrase|code|file)|pwd|(?<![a-z])pass|secret|token|cookie|authorization|credentials?|jwt"
    r"|(?:api|access|secret|private|account|shared|signing|encryption|client|server)[-_.]?key|signature|(?<![a-z])sig"
    r"|session[-_.]?id)(?:[-_.]?(?:hash|value|key|id|confirm(?:ation)?|\d{1,9})){0,2}"
)

# One of the words is in every name of a secret.
_NAME_WORD: Final = re.compile("pass|pwd|secret|token|cookie|authorization|credential|jwt|key|sig|session")

_NAME: Final = (
    rf"(?<![\w.-])(?P<name>(?=[\w.-]*?{_NAMED}(?![\w.-]))[\w.-]++"
    r"|(?:api|access|secret|private|account|signing|encryption)\ key(?![\w.-]))"
)
_QUOTED: Final = r"""[bBuU]?(?P<quote>\\*["'])(?:(?!(?<!\\)(?P=quote)).)*+(?:(?P=quote))?"""
_PAIR: Final = re.compile(
    rf"""{_NAME}(?P<between>\\*["'\]]{{0,2}}[ \t]*+(?:=>?(?!=)[ \t]*+|:(?!:|//)[ \t]*+))"""
    rf"""(?P<value>\*\*\*(?![^\s,;&)\]}}"'])|{_QUOTED}|[\[{{(][^\])}}\n]*+[\])}}]?|(?:[^\s&'"]|['"](?=\w))++)""",
    re.IGNORECASE | re.DOTALL,
)
# Headers as Python shows them (b'cookie', b'…'), arguments '--token', '…', and password '…' in SQL.
_TUPLE: Final = re.compile(
    rf"""(?P<before>(?:\([bB]?["']|["'](?=--)){_NAME}["'],\s*+|(?<!\w)password\s++(?=')){_QUOTED}""",
    re.IGNORECASE | re.DOTALL,
)
# Cookies and authorizations contain spaces, so their values reach to the end of the line.
_WHOLE_LINE: Final = re.compile(r"(?:cookie|authorization)$", re.IGNORECASE)
_PASSWORD: Final = re.compile(r"pass|pwd", re.IGNORECASE)
_FAULTY: Final = re.compile(
    r"(?:unexpected|invalid|illegal|unknown|bad|expected|missing|unrecognized|next)\s+$", re.IGNORECASE
)
_WORD: Final = re.compile(r"""[\\bu]*["']?([A-Za-z][a-z]{0,20})(?=[\s.,;:!?)'"]|$)""")
_SENTENCE: Final = re.compile(r"[A-Za-z][a-z]{1,20} [a-z]{2,20}\b")
_PROSE: Final = re.compile(
    r"a|an|and|any|are|as|at|auth|authentication|authorization|be|bearer|but|by|can|cannot|"
    r"contains|could|credentials|denied|did|does|end|error|exceeded|expected|expired|failed|"
    r"field|for|from|got|had|has|header|identifier|if|illegal|in|incorrect|input|invalid|is|"
    r"it|its|length|malformed|may|mismatch|missing|must|name|no|none|not|null|of|on|only|"
    r"or|password|please|realm|rejected|required|revoked|scheme|scope|secret|should|signature|"
    r"string|than|that|the|this|to|token|tokens|too|true|false|type|undefined|unexpected|"
    r"unknown|unsupported|usage|user|value|verification|was|were|what|when|which|will|with|"
    r"without|wrong|you|your",
    re.IGNORECASE,
)
_NOTHING: Final = frozenset(("", "null", "none", "true", "false", "undefined"))

_SCHEME: Final = re.compile(
    r"""(?<!\w)((?P<scheme>bearer|basic)(?:[ \t]++|%20|\+)["']?)(?P<value>[\w.~+/=-]++)""", re.IGNORECASE
)
_LOWER: Final = re.compile(r"[A-Za-z]?[a-z]*(?:-[a-z]+)*\.?")

_TOKEN = re.compile(r"\S+")
# The match extends to the last "@", so that no part of a password with an unescaped "@" or "/" is left.
_IN_URL = re.compile(r"((?<!\w)\w+://[^:/@\s]*):\S*@")
_USER_ALONE = re.compile(r"((?<!\w)https?://)[^\s/@:?#]++@", re.IGNORECASE)
_IN_QUERY: Final = re.compile(r"""([?&](?:key|sig|auth|pw)=)[^\s&#'"]++""", re.IGNORECASE)
_KNOWN_FORM: Final = re.compile(
    r"-----BEGIN[A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END[A-Z ]{0,40}-----|\Z)"
    r"|whsec_[A-Za-z0-9+/_-]+=*"
    r"|(?:(?<![\w-])|(?<=%20))(?:eyJ[\w-]{5,}+\.[\w-]{5,}+(?:\.[\w-]*+)?|(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Z])"
    r"|(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|[rs]k[_-](?:live|test|proj)[_-]|AIza)[\w-]{16,}+)",
    re.DOTALL,
)
# One of the texts is in every match of `_KNOWN_FORM`.
_FORM: Final = re.compile("-----BEGIN|whsec_|eyJ|AKIA|ASIA|gh[pousr]_|github_pat_|glpat-|xox|rk[_-]|sk[_-]|AIza")
# libpq quotes any part of a connection string that it cannot read.
_UNREAD = re.compile(
    r'((?:percent-encoded (?:token|value): |missing "=" after |spaces found in |invalid connection option '
    r'|URI query parameter: |in URI: |\(expected ":" or "/"\): |invalid port number: ))"[^\n]*'
)

# A user name without a password may be a token, as in NATS.
_NAME_ALONE = re.compile(r"^([A-Za-z][\w+.-]*://)[^:/@\s]+@")
_TELLING = re.compile(r"pass|secret|token|key|sig|auth|credential|pem|jaas", re.IGNORECASE)
_HEADER: Final = re.compile(
    r"passw|passphrase|passcode|(?<![a-z])pass(?![a-z])|pwd|secret|token|cookie|credential|auth(?!or(?!i[sz]))|jwt|otp"
    r"|(?:api|access|private|account|shared|signing|encryption)[-_.]?key|(?<![a-z])sig|signature|session|[cx]srf",
    re.IGNORECASE,
)


def mask_secrets(text: str) -> str:
    """Replace every secret in a text, such as a password or token, by a mask."""
    # Every expression takes linear time, because names are matched as whole words only.
    # Text that is masked already does not change. Most texts have no secret. A search for a part that every match has
    # takes a hundredth of the time of the expressions, which took 600 us for a traceback.
    if "@" in text:
        text = _USER_ALONE.sub(rf"\1{MASK}@", _TOKEN.sub(_mask_password, text))
    if _FORM.search(text):
        text = _KNOWN_FORM.sub(MASK, text)
    folded = text.casefold()
    if _NAME_WORD.search(folded):
        text = _TUPLE.sub(_mask_tuple, _mask_pairs(text))
    if "bearer" in folded or "basic" in folded:
        text = _SCHEME.sub(_mask_scheme, text)
    if "?" in text or "&" in text:
        text = _IN_QUERY.sub(rf"\1{MASK}", text)
    return _UNREAD.sub(rf"\1{MASK}", text) if '"' in text else text


def mask_optional(text: str | None) -> str | None:
    return None if text is None else mask_secrets(text)


def mask_headers(headers: Mapping[str, Any]) -> dict[str, str]:
    """Return event headers as texts, with secrets replaced by a mask."""
    # The whole value of a header with the name of a secret is masked, and so are secrets within other values.
    return {name: _mask_value(name, str(value)) for name, value in headers.items()}


def mask_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Mask the secrets in the text values of a dict. Other values stay unchanged."""
    # Texts are treated as header values.
    return {name: _mask_value(name, each) if isinstance(each, str) else each for name, each in fields.items()}


def is_secret(name: str) -> bool:
    """Return True if a key, such as "password", names a secret."""
    # A key of a connection string is an example of a name. A secret is for instance a password or a token.
    return _PAIR.match(f"{name}=x") is not None


def mask_url(url: str) -> str:
    """Mask the password, tokens and other secrets in the URL of a broker or a webhook."""
    # Secrets in the query are masked. All values in the query of a webhook are masked, because its names can be
    # anything.
    place, mark, query = _NAME_ALONE.sub(rf"\1{MASK}@", mask_secrets(url)).partition("?")
    is_webhook = place.lower().startswith("http")
    return place + mark + "&".join(_mask_pair(each, is_webhook) for each in query.split("&"))


def _mask_value(name: str, value: str) -> str:
    return MASK if _HEADER.search(name) else mask_secrets(value)


def _mask_pair(pair: str, always: bool) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}={MASK}" if equals and (always or _TELLING.search(name)) else MASK if always and pair else pair


def _mask_password(token: re.Match[str]) -> str:
    # Only the part up to the last "@" is searched, since nothing matches behind it and a search there takes quadratic
    # time.
    end = token[0].rfind("@") + 1
    return _IN_URL.sub(rf"\1:{MASK}@", token[0][:end]) + token[0][end:]


def _mask_pairs(text: str) -> str:
    # This is a loop instead of `sub`, because the text after prose, and the rest of a cookie's line, must be searched
    # as well.
    parts, done, at = [], 0, 0
    while (found := _PAIR.search(text, at)) is not None:
        at = found.end("between")
        if not _is_prose(found):
            parts += [text[done:at], MASK]
            at = done = _end_of_value(found)
    return "".join([*parts, text[done:]])


def _end_of_value(found: re.Match[str]) -> int:
    if found["quote"] or found["value"] == MASK or not _WHOLE_LINE.search(found["name"]):
        return found.end()
    line = found.string.find("\n", found.end())
    return len(found.string) if line < 0 else line


def _is_prose(found: re.Match[str]) -> bool:
    """Return True if the text after a word such as "token" is ordinary prose, and not a secret to mask."""
    # Prose is kept, as in "invalid token: unexpected }".
    # The value is empty, or words about a secret after a colon.
    name, between, value = found.group("name", "between", "value")
    if value.strip("\\\"'").rstrip(",;)}]").lower() in _NOTHING:
        return True
    if ":" not in between:
        return False
    word = _WORD.match(value)
    # The name is a key of JSON or Python, whose texts have quotes, or a quoted name in a sentence.
    if between[0] in "\\\"'":
        return _SENTENCE.match(found.string, found.start("value")) is not None
    if _WHOLE_LINE.search(name) and word is not None and word[1].lower() in ("bearer", "token"):
        return False
    if word is not None and _PROSE.fullmatch(word[1]):
        return True
    if _PASSWORD.search(name):
        return False
    # The value is a token at which a parser failed.
    if not any(map(str.isalnum, value[:100])):
        return True
    before = found.string[max(0, found.start() - 16) : found.start()]
    return _FAULTY.search(before) is not None and word is not None


def _mask_tuple(found: re.Match[str]) -> str:
    return found["before"] + MASK


def _mask_scheme(found: re.Match[str]) -> str:
    is_word = _PROSE.fullmatch(found["value"].rstrip(".")) or (
        found["scheme"].lower() == "basic" and _LOWER.fullmatch(found["value"])
    )
    return found[0] if is_word else found[1] + MASK
