"""Headers of protocols that take visible ASCII only: HTTP, NATS.

What they do not take is percent-encoded, as the HTTP binding of CloudEvents 1.0 says (section 3.1.3.2).
"""

import re
from collections.abc import Mapping
from string import ascii_letters, digits, printable
from urllib.parse import quote

_TOKEN = "!#$&'*+-.^_`|~" + ascii_letters + digits
_VALUE = "".join(each for each in printable if each not in ' "%\t\n\r\x0b\x0c')

_TOKENS = re.compile(f"[{re.escape(_TOKEN)}]*")
_VALUES = re.compile(f"[{re.escape(_VALUE)}]*")


def ascii_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers as such a protocol takes them."""
    if _TOKENS.fullmatch("".join(headers)) and _VALUES.fullmatch("".join(headers.values())):  # as mostly
        return dict(headers)
    return {quote(name, safe=_TOKEN): quote(value, safe=_VALUE) for name, value in headers.items()}
