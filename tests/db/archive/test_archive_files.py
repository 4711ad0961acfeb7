"""The files of an archive: what is read of them, whoever has compressed it, and what is told of broken ones."""

import sys
import tracemalloc
from pathlib import Path

import pytest

from partbox.archive import files
from partbox.archive.errors import ZSTD, import_library
from partbox.archive.location import LocalDirectory
from partbox.errors import PartboxError, SettingsError

LINES = [f'{{"id":{n},"payload":"{n * n}, für {n}"}}'.encode() for n in range(1, 40)]
BY_ZSTANDARD = bytes.fromhex(
    "28b52ffd0458dd0700f28b1e1bb0271dc092244e8d3741889afaa1c8444a29a54ce918da3b918b01c562f295c713fefedeedeedf3abda5ff"
    "a7bf7ffa5bfe7913da78b6cf3eb3cdbeb25d36924d64d371d69e483e5ee259b96db3b5b6d4d63de79c6631910c2fe9cc6e552eb2d2f32617"
    "8ba951402400c65183182519080c09c11c458c12308772a821a0ddfe6f7033923c1014c3a40be501df4d9798832fa302b75558641f46f482"
    "0f70db1ac5adee4576d3aebfe91238f3546ebf1d2f88394fd2c36ada10d96271e784279155a78a0baa9b2947aa8da0847a9e6c39112666e9"
    "7f0142428efe4866a296841d798510fecebfd977f635d9f0f62cfccac7e4853e16405701f4338342"
)
"""LINES as the library zstandard 0.25 has compressed them."""
EMPTY = b"\x50\x2a\x4d\x18\x04\x00\x00\x00pzst"
"""A frame without content, such as pzstd writes."""


def read(folder: Path, content: bytes) -> list[bytes]:
    (folder / "record.jsonl.zst").write_bytes(content)
    return list(files.read_lines(LocalDirectory(folder), "record.jsonl.zst"))


@pytest.fixture(params=["backports.zstd", "compression.zstd"])
def either_module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module under the name that it has in this Python, and under the other one."""
    monkeypatch.setitem(sys.modules, request.param, import_library(ZSTD))
    monkeypatch.setattr(files, "ZSTD", request.param)


@pytest.mark.usefixtures("either_module")
def test_files_that_another_library_has_written_are_read(tmp_path: Path) -> None:
    assert read(tmp_path, BY_ZSTANDARD) == LINES
    assert read(tmp_path, EMPTY + BY_ZSTANDARD + EMPTY + BY_ZSTANDARD) == LINES * 2


def test_a_file_that_is_cut_short_anywhere_is_reported_in_one_line(tmp_path: Path) -> None:
    for kept in range(len(BY_ZSTANDARD)):
        with pytest.raises(
            PartboxError, match=r"record.jsonl.zst' is cut short: restore it from another copy, or remove it$"
        ):
            read(tmp_path, BY_ZSTANDARD[:kept])
    with pytest.raises(PartboxError, match="is cut short"):
        read(tmp_path, BY_ZSTANDARD + BY_ZSTANDARD[:9])


def test_a_damaged_byte_in_a_file_never_changes_a_line_unnoticed(tmp_path: Path) -> None:
    told = []
    for place in range(len(BY_ZSTANDARD)):
        broken = bytearray(BY_ZSTANDARD)
        broken[place] ^= 0x55
        try:
            assert read(tmp_path, bytes(broken)) == LINES, "what a file says of itself may be wrong without harm"
        except PartboxError as error:
            told.append(str(error))
    assert len(told) > len(BY_ZSTANDARD) - 5
    assert not any("\n" in each for each in told)


def test_reading_takes_little_memory_however_much_a_file_grows(tmp_path: Path) -> None:
    (tmp_path / "record.jsonl.zst").write_bytes(import_library(ZSTD).compress(bytes(1_000_000) + b"\n") * 50)
    tracemalloc.start()
    try:
        assert sum(map(len, files.read_lines(LocalDirectory(tmp_path), "record.jsonl.zst"))) == 50_000_000
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_python_that_was_built_without_zstd_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "compression").mkdir()
    (tmp_path / "compression" / "zstd.py").write_text("import _zstd")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("_zstd", "compression.zstd"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "_zstd", None)
    with pytest.raises(SettingsError, match=r"needs compression\.zstd: build this Python again, with libzstd"):
        import_library("compression.zstd")
