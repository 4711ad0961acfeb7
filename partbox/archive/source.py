"""An archive to be read: a place, or one file of it, and its records in the order of their ids."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from partbox.archive import files
from partbox.archive.files import ENDING, file_name
from partbox.archive.lines import row_of
from partbox.archive.place import Place, place_of
from partbox.db.operator.archive import ArchiveRow
from partbox.errors import PartboxError

ENDINGS: Final = (ENDING, ".jsonl")
"""Endings of a file that may be named instead of an archive: one of its files, packed or unpacked."""


class Entry(NamedTuple):
    """A record, where it was found, and its bytes."""

    row: ArchiveRow
    place: str
    size: int


class Source:
    """The files of an archive, in order. `total`: at most so many records are in them, by their names; 0: unknown."""

    def __init__(self, place: Place, names: list[str]) -> None:
        self.shown = place.shown if len(names) != 1 else f"{place.shown}/{names[0]}"
        self.names = names
        known = [found for name in names if (found := file_name(name))]
        self.total = sum(each.last - each.first + 1 for each in known) if len(known) == len(names) else 0
        self._place = place

    def entries(self) -> Iterator[Entry]:
        """Each record; PartboxError for a line that is none, and for a file that is damaged or cut short."""
        for name in self.names:
            for number, line in enumerate(files.lines(self._place, name), 1):
                where = f"line {number} of {self._place.shown}/{name}"
                try:
                    yield Entry(row_of(line), where, len(line))
                except ValueError as error:
                    raise PartboxError(f"{where} is no record of an archive: {error}") from None


def source_of(text: str) -> Source:
    """The archive in a directory, at a URL, or one file of either; PartboxError if there is none."""
    if text.endswith(ENDINGS):
        folder, _, name = text.rpartition("/")
        folder = folder or ("/" if text.startswith("/") else ".")
        if "://" in text or not Path(text).is_dir():
            return Source(place_of(folder), [name])
    place = place_of(text)
    found = sorted((parts, name) for name in place.names() if (parts := file_name(name)))
    if not found:
        raise PartboxError(f"archive {place.shown!r} holds no file record-*{ENDING}: name another place, or a file")
    return Source(place, [name for _, name in found])
