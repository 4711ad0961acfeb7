"""The disk of a run's own server: full for a while, or until the server ends."""

from pathlib import Path

import pytest
from forked_commands import forks
from small_disk import small_disk
from test_chaos_command import chaos, ended, make_open_folder

from partbox.errors import PartboxError
from partbox_lab.chaos.disk import mounted
from partbox_lab.chaos.full_disk import NOT_OURS, OwnDisk

__all__ = ["chaos", "forks", "make_open_folder"]

FAULTS = ("disk-full", "wal-full")


@pytest.mark.thorough
def test_a_short_run_on_a_disk_that_is_full_again_and_again_keeps_every_promise(chaos):
    run = ("--seconds", "4", "--seed", "1610", "--nodes", "1", "--processes", "1", "--faults", ",".join(FAULTS))
    report = ended(chaos("--embedded", *run, "--json"))
    if report["skipped"]:
        pytest.skip(str(report["skipped"]))
    assert set(report["faults"]) == set(FAULTS)
    assert report["refused"] > 0
    assert report["published"] > 50


def test_a_full_disk_refuses_writes_until_room_is_made():
    with small_disk(2) as disk:
        file = disk.folder / "file"
        file.write_bytes(bytes(100_000))
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (disk.folder / "more").write_bytes(bytes(100_000))
        disk.make_room()
        (disk.folder / "more").write_bytes(bytes(100_000))
        assert file.read_bytes() == bytes(100_000)


def test_a_disk_is_mounted_only_if_a_fault_wants_one(tmp_path: Path):
    disk = OwnDisk(wanted=False)
    with disk.under(tmp_path / "db"):
        assert disk.disk is None
    assert disk.lacking == NOT_OURS
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_cannot_mount_a_disk_says_why_and_goes_on(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("partbox_lab.chaos.disk.os.geteuid", lambda: 1000)
    disk = OwnDisk(wanted=True)
    with disk.under(tmp_path / "db"):
        assert disk.disk is None
    assert disk.lacking == "only root can mount a disk that is small enough"


def test_an_error_of_mount_is_given_as_the_reason(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("partbox_lab.chaos.disk.os.geteuid", lambda: 0)
    with pytest.raises(PartboxError, match="no tmpfs can be mounted here"), mounted(tmp_path / "is not there", 1):
        raise AssertionError("it was mounted")
