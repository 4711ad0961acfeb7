"""The partition, one of 256, of a key."""

import mmh3


def partition_of(text: str) -> int:
    """The partition, 0 to 255, of an aggregate id: the lowest byte of MurmurHash3 x86 32-bit, seed 0, of its UTF-8."""
    return mmh3.hash(text.encode(), 0, signed=False) & 0xFF
