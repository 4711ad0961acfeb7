"""The files of an archive: lines of JSON, compressed by zstd as one frame with a checksum, so that a truncated file is
detected. A line is a record without null fields. `payload` and `headers` hold the published JSON as text, letter for
letter. Bytes are base64. Times are in UTC, with microseconds."""

import hashlib
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple
from uuid import UUID

import orjson

from partbox.archive.errors import ZSTD, import_library
from partbox.archive.location import Location, location_of
from partbox.db.operator.archive import ArchiveRow
from partbox.errors import PartboxError

SUFFIX = ".jsonl.zst"
ID_DIGITS = 19
"""Digits of an id in a file name, padded with zeros, so that names sort as numbers."""
DIGEST_LENGTH = 12

_NAME = re.compile(r"record-([0-9]{1,19})-([0-9]{1,19})-([0-9a-f]{12})\.jsonl\.zst")


class ArchiveFileName(NamedTuple):
    """The parsed name of an archive file: its first and last record id, and a digest of its lines."""

    first: int
    last: int
    digest: str

    def __str__(self) -> str:
        return f"record-{self.first:0{ID_DIGITS}}-{self.last:0{ID_DIGITS}}-{self.digest}{SUFFIX}"


def parse_file_name(name: str) -> ArchiveFileName | None:
    """Parse the name of an archive file into record ids and digest, or return None for the name of any other file."""
    found = _NAME.fullmatch(name)
    return ArchiveFileName(int(found[1]), int(found[2]), found[3]) if found else None


COMPRESSION_LEVEL: Final = 3  # of zstd
CHUNK_BYTES: Final = 64 << 10
"""Bytes of lines that are compressed, or read, at once."""


class ArchiveFileWriter:
    """A writer that appends records to one compressed archive file.

    `size` is the number of bytes of the lines so far, before compression."""

    def __init__(self, place: Location, file: BinaryIO) -> None:
        zstd = import_library(ZSTD)
        self.records = 0
        self.size = 0
        self._first = self.last = 0
        self._place = place
        self._file = file
        self._digest = hashlib.sha256()
        wanted = zstd.CompressionParameter
        self._frame: Any = zstd.ZstdCompressor(
            options={wanted.compression_level: COMPRESSION_LEVEL, wanted.checksum_flag: 1}
        )
        self._pending = bytearray()

    def write(self, row: ArchiveRow) -> None:
        """Append a record as a line of JSON to the archive file."""
        line = line_of(row)
        self._pending += line
        if len(self._pending) >= CHUNK_BYTES:
            self._compress()
        self._first, self.last = (self._first if self.records else row.id), row.id
        self.records += 1
        self.size += len(line)

    def finish_file(self) -> int:
        """Finish the archive file and move it to its final location. Return its size in bytes."""
        # A file without records is not kept.
        if not self.records:
            return 0
        self._compress()
        self._file.write(self._frame.flush())
        self._place.keep_file(
            self._file, str(ArchiveFileName(self._first, self.last, self._digest.hexdigest()[:DIGEST_LENGTH]))
        )
        return self._file.tell()

    def _compress(self) -> None:
        self._file.write(self._frame.compress(self._pending))
        self._digest.update(self._pending)
        self._pending.clear()


def read_lines(place: Location, name: str) -> Iterator[bytes]:
    """Yield the decompressed lines of an archive file. Raise `PartboxError` if it is damaged or truncated."""
    with place.open_file(name) as file:
        pieces = _decompress(file, f"{place.display_name}/{name}") if name.endswith(SUFFIX) else _read_chunks(file)
        rest = b""
        for piece in pieces:
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole
        if rest:
            yield rest


def _read_chunks(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.read(CHUNK_BYTES), b"")


def _decompress(file: BinaryIO, display_name: str) -> Iterator[bytes]:
    """Yield the decompressed content of a zstd file. Raise `PartboxError` if it is damaged or truncated."""
    # The file may have several frames.
    zstd = import_library(ZSTD)
    try:
        yield from _read_chunks(zstd.ZstdFile(file))
    except EOFError:
        raise PartboxError(
            f"archive file {display_name!r} is cut short: restore it from another copy, or remove it"
        ) from None
    except zstd.ZstdError as error:
        raise PartboxError(f"archive file {display_name!r} is damaged: {error}: restore it from another copy") from None


FILE_SUFFIXES: Final = (SUFFIX, ".jsonl")
"""Suffixes by which a single file, compressed or not, may be named instead of an archive."""


class ArchiveEntry(NamedTuple):
    """A record read from an archive, with its file, line number and size in bytes."""

    row: ArchiveRow
    place: str
    size: int


class ArchiveSource:
    """The files of an archive, in the order in which they are read.

    `total` is the largest number of records that they can contain according to the ids in their names, or 0 if
    unknown."""

    def __init__(self, place: Location, names: list[str]) -> None:
        self.display_name = place.display_name if len(names) != 1 else f"{place.display_name}/{names[0]}"
        self.names = names
        known = [found for name in names if (found := parse_file_name(name))]
        self.total = sum(each.last - each.first + 1 for each in known) if len(known) == len(names) else 0
        self._place = place

    def read_entries(self) -> Iterator[ArchiveEntry]:
        """Yield each record of the archive's files. Raise `PartboxError` for a damaged file or line."""
        # A truncated file and a line that is no record raise it as well.
        for name in self.names:
            for number, line in enumerate(read_lines(self._place, name), 1):
                where = f"line {number} of {self._place.display_name}/{name}"
                try:
                    yield ArchiveEntry(row_of(line), where, len(line))
                except ValueError as error:
                    raise PartboxError(f"{where} is no record of an archive: {error}") from None


def open_source(text: str) -> ArchiveSource:
    """Open an archive, or one file of it, at a path or URL for reading. Raise `PartboxError` if there is none."""
    # The path may be that of a directory.
    if text.endswith(FILE_SUFFIXES):
        folder, _, name = text.rpartition("/")
        folder = folder or ("/" if text.startswith("/") else ".")
        if "://" in text or not Path(text).is_dir():
            return ArchiveSource(location_of(folder), [name])
    place = location_of(text)
    found = sorted((parts, name) for name in place.list_names() if (parts := parse_file_name(name)))
    if not found:
        raise PartboxError(
            f"archive {place.display_name!r} holds no file record-*{SUFFIX}: name another place, or a file"
        )
    return ArchiveSource(place, [name for _, name in found])


TEXT_FIELDS: Final = (
    "event_type", "aggregate_type", "aggregate_id", "tenant_id", "payload", "content_type", "headers", "available_at",
    "occurred_at", "created_at",
)  # fmt: skip
REQUIRED_FIELDS: Final = ("id", "partition", "event_id", "event_type", "aggregate_type", "occurred_at", "created_at")
KNOWN_FIELDS: Final = frozenset({"id", "partition", "event_id", "payload_bytes", *TEXT_FIELDS})
MAX_ID: Final = 2**63 - 1
PARTITIONS: Final = 256


def line_of(row: ArchiveRow) -> bytes:
    """Encode a record as one line of JSON for an archive file, with the line end."""
    fields: dict[str, Any] = {name: value for name, value in row._asdict().items() if value is not None}
    del fields["expired"]
    if row.payload_bytes is not None:
        fields["payload_bytes"] = b64encode(row.payload_bytes).decode()
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def row_of(line: bytes) -> ArchiveRow:
    """Decode the record in a line of an archive file. Raise `ValueError` if the line is no record."""
    # The error has the reason.
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise ValueError("it is not JSON") from None
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    if unknown_fields := sorted(fields.keys() - KNOWN_FIELDS):
        raise ValueError(f"{unknown_fields[0]!r} is no column of a record")
    for name in REQUIRED_FIELDS:
        if fields.get(name) is None:
            raise ValueError(f"it has no {name}")
    return ArchiveRow(
        id=_read_number(fields, "id", MAX_ID),
        partition=_read_number(fields, "partition", PARTITIONS - 1),
        event_id=_read_uuid(fields),
        payload_bytes=_read_bytes(fields),
        expired=True,
        **{name: _read_text(fields, name) for name in TEXT_FIELDS},
    )


def _read_number(fields: dict[str, Any], name: str, most: int) -> int:
    value = fields[name]
    # A bool is an int in Python.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"its {name} is no number from 0 to {most}")
    return value


def _read_text(fields: dict[str, Any], name: str) -> Any:
    value = fields.get(name)
    if value is not None and (not isinstance(value, str) or "\0" in value):
        raise ValueError(f"its {name} is no text that PostgreSQL can store")
    return value


def _read_uuid(fields: dict[str, Any]) -> str:
    try:
        return str(UUID(_read_text(fields, "event_id")))
    except ValueError:
        raise ValueError("its event_id is no UUID") from None


def _read_bytes(fields: dict[str, Any]) -> bytes | None:
    text = _read_text(fields, "payload_bytes")
    try:
        return None if text is None else b64decode(text, validate=True)
    except ValueError:
        raise ValueError("its payload_bytes are not base64") from None
