"""Jobs of several supervisors in one process: each travels with the application's path, whoever spawns meanwhile."""

import sys
import threading

import pytest

from partbox.supervisor.parcel import PATH, Packing, by_own_path


def test_a_job_that_is_packed_while_another_process_is_spawned_has_the_path_of_the_application(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", ["/of/the/application", *PATH])
    packed: list[Packing] = []
    with by_own_path():
        packing = threading.Thread(target=lambda: packed.append(Packing(None)))
        packing.start()
        assert "/of/the/application" not in sys.path
    packing.join()
    assert packed[0]._path[0] == "/of/the/application"


def test_the_path_of_the_application_is_back_when_several_have_spawned_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", given := ["/of/the/application", *PATH])
    all_here = threading.Barrier(4)

    def spawn() -> None:
        all_here.wait()
        for _ in range(200):
            with by_own_path():
                assert sys.path == [*PATH]

    threads = [threading.Thread(target=spawn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.path is given
