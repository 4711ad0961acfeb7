"""The files of an archive, to be written and read back.

They are lines of JSON, compressed by zstd. Each is one frame with a checksum, so one that is cut short is told.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from partbox.archive.errors import ZSTD, library
from partbox.archive.lines import line_of, row_of
from partbox.archive.place import Place, place_of
from partbox.db.operator.archive import ArchiveRow
from partbox.errors import PartboxError

ENDING = ".jsonl.zst"
DIGITS = 19
"""Digits of an id in a file name, padded with zeros: names sort as numbers do."""
DIGEST = 12

_NAME = re.compile(r"record-([0-9]{1,19})-([0-9]{1,19})-([0-9a-f]{12})\.jsonl\.zst")


class FileName(NamedTuple):
    """A file of an archive, by its name: the ids of its first and last record, and the digest of its lines."""

    first: int
    last: int
    digest: str

    def __str__(self) -> str:
        return f"record-{self.first:0{DIGITS}}-{self.last:0{DIGITS}}-{self.digest}{ENDING}"


def file_name(name: str) -> FileName | None:
    """The parts of a file's name; None if it is not one of ours."""
    found = _NAME.fullmatch(name)
    return FileName(int(found[1]), int(found[2]), found[3]) if found else None


LEVEL: Final = 3
PIECE: Final = 64 << 10
"""Bytes of lines that are compressed, or read, at once."""


class Part:
    """A file that is being written."""

    def __init__(self, place: Place, file: BinaryIO) -> None:
        zstd = library(ZSTD)
        self.records = 0
        self.size = 0
        """Bytes of its lines."""
        self._first = self.last = 0
        self._place = place
        self._file = file
        self._digest = hashlib.sha256()
        wanted = zstd.CompressionParameter
        self._frame: Any = zstd.ZstdCompressor(options={wanted.compression_level: LEVEL, wanted.checksum_flag: 1})
        self._pending = bytearray()

    def write(self, row: ArchiveRow) -> None:
        line = line_of(row)
        self._pending += line
        if len(self._pending) >= PIECE:
            self._compress()
        self._first, self.last = (self._first if self.records else row.id), row.id
        self.records += 1
        self.size += len(line)

    def keep(self) -> int:
        """Keep it in its place, for good; its bytes. One that holds nothing is not kept."""
        if not self.records:
            return 0
        self._compress()
        self._file.write(self._frame.flush())
        self._place.keep(self._file, str(FileName(self._first, self.last, self._digest.hexdigest()[:DIGEST])))
        return self._file.tell()

    def _compress(self) -> None:
        self._file.write(self._frame.compress(self._pending))
        self._digest.update(self._pending)
        self._pending.clear()


def lines(place: Place, name: str) -> Iterator[bytes]:
    """The lines of a file; PartboxError if it is no file of an archive, or not whole."""
    with place.reading(name) as file:
        pieces = _unpacked(file, f"{place.shown}/{name}") if name.endswith(ENDING) else _pieces(file)
        rest = b""
        for piece in pieces:
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole
        if rest:
            yield rest


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.read(PIECE), b"")


def _unpacked(file: BinaryIO, shown: str) -> Iterator[bytes]:
    """The content of a compressed file, of one frame or several."""
    zstd = library(ZSTD)
    try:
        yield from _pieces(zstd.ZstdFile(file))
    except EOFError:
        raise PartboxError(f"archive file {shown!r} is cut short: take another copy of it, or remove it") from None
    except zstd.ZstdError as error:
        raise PartboxError(f"archive file {shown!r} is damaged: {error}: take another copy of it") from None


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
            for number, line in enumerate(lines(self._place, name), 1):
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
