"""The names of the files: `record-FIRST-LAST-DIGEST.jsonl.zst`, which sort by their first record's id."""

import re
from typing import NamedTuple

ENDING = ".jsonl.zst"
DIGITS = 19
"""Of an id, with zeros in front: so texts sort as numbers do."""
DIGEST = 12

_NAME = re.compile(r"record-([0-9]{1,19})-([0-9]{1,19})-([0-9a-f]{12})\.jsonl\.zst")


class Named(NamedTuple):
    """A file of an archive, by its name: the ids of its first and last record, and the digest of its lines."""

    first: int
    last: int
    digest: str

    def __str__(self) -> str:
        return f"record-{self.first:0{DIGITS}}-{self.last:0{DIGITS}}-{self.digest}{ENDING}"


def named(name: str) -> Named | None:
    """The parts of a file's name; None if it is not one of ours."""
    found = _NAME.fullmatch(name)
    return Named(int(found[1]), int(found[2]), found[3]) if found else None
