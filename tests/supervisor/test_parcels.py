"""Processes are spawned with partbox's own path, and nothing that the application's threads see is changed for that."""

import sys
import threading
from pathlib import Path

import multiprocess
import pytest
from multiprocess import popen_spawn_posix, spawn

from partbox.supervisor import job_pickling
from partbox.supervisor.job_pickling import PATH, PicklableJob, SpawnedWorker


def write_path(place: str) -> None:
    Path(place).write_text("\n".join(sys.path))


def test_a_worker_process_begins_with_the_sys_path_of_partbox_whatever_the_application_did_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "path", ["/of/the/application", str(Path(__file__).parent)])
    monkeypatch.setattr(job_pickling, "PATH", (*PATH, str(Path(__file__).parent)))
    process = SpawnedWorker(target=write_path, args=(str(tmp_path / "path"),))
    process.start()
    process.join()
    assert (tmp_path / "path").read_text().split("\n") == [*PATH, str(Path(__file__).parent)]


def test_nothing_that_other_threads_see_changes_while_a_process_is_spawned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "path", given := [*sys.path, "/of/the/application"])
    seen = lambda: (id(sys.path), [*sys.path], spawn.get_preparation_data, popen_spawn_posix.spawn)  # noqa: E731
    before, after = seen(), set()
    begun, ended = threading.Event(), threading.Event()

    def watch() -> None:
        while not ended.is_set():
            after.add(seen() == before)
            begun.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    begun.wait()
    try:
        for number in range(2):
            process = SpawnedWorker(target=write_path, args=(str(tmp_path / str(number)),))
            process.start()
            process.join()
    finally:
        ended.set()
        watcher.join()
    assert after == {True}
    assert sys.path is given


def test_a_job_is_pickled_with_the_sys_path_of_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/of/the/application", *PATH])
    _, (_, path) = PicklableJob(None).__reduce__()
    assert path == ["/of/the/application", *dict.fromkeys(PATH)]


def test_a_process_that_the_application_spawns_itself_gets_its_sys_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "path", ["/of/the/application", *sys.path])
    process = multiprocess.get_context("spawn").Process(target=write_path, args=(str(tmp_path / "path"),))
    process.start()
    process.join()
    assert (tmp_path / "path").read_text().split("\n")[0] == "/of/the/application"
