"""The partition, one of 256, of a key."""

import mmh3

from partbox.errors import PublishError


def partition_of(text: str) -> int:
    """The partition, 0 to 255, of an aggregate id: the lowest byte of MurmurHash3 x86 32-bit, seed 0, of its UTF-8.

    PublishError for anything but text.
    """
    try:
        key = text.encode()
    except AttributeError:
        kind = type(text).__name__
        raise PublishError(f"aggregate id {text!a} is of type {kind}, not text: give the text, as of str(id)") from None
    except UnicodeEncodeError:
        raise PublishError(f"aggregate id {text!a} holds a lone surrogate, which is not valid text") from None
    return mmh3.hash(key, 0, signed=False) & 0xFF
