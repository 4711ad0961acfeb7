"""The hash that maps a key to one of 256 partitions."""

import mmh3

from partbox.errors import PublishError


def partition_of(text: str) -> int:
    """Return the partition, 0 to 255, of an aggregate id. Raise PublishError if the id is not valid text."""
    # The partition is the lowest byte of the MurmurHash3 x86 32-bit hash of the UTF-8 text, with seed 0.
    try:
        key = text.encode()
    except AttributeError:
        kind = type(text).__name__
        raise PublishError(f"aggregate id {text!a} is of type {kind}, not text: convert it by str(id)") from None
    except UnicodeEncodeError:
        raise PublishError(f"aggregate id {text!a} holds a lone surrogate, which is not valid text") from None
    # All publishers must have the same hash. With two of them, the events of one aggregate would be in two partitions,
    # and lose their order.
    return mmh3.hash(key, 0, signed=False) & 0xFF
