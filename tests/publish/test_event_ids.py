"""The ids of events: UUIDv7 that ascend in a process, and differ between processes however they were started."""

import os
import runpy
import subprocess
import sys
import time
import uuid

import pytest

from partbox import Event, platform

FORKED = """
import os, sys, time
from partbox import Event
Event("T", 1)
for _ in range(20):
    together = time.monotonic() + 0.01
    children = [pid for pid in (os.fork() for _ in range(2)) if pid]
    while time.monotonic() < together: pass
    os.write(1, "".join(f"{Event('T', 1).event_id}\\n" for _ in range(100)).encode())
    if len(children) < 2:
        os._exit(0)
    for pid in children:
        os.waitpid(pid, 0)
"""
"""Twenty times: a process and three that are forked from it, or from each other, make ids at the same time."""


def test_the_ids_of_a_process_ascend_and_carry_its_time() -> None:
    before = time.time_ns() // 1_000_000
    ids = [Event("T", 1).event_id for _ in range(10_000)]
    assert ids == sorted(set(ids))
    assert {(id.version, id.variant) for id in ids} == {(7, uuid.RFC_4122)}
    assert before <= ids[0].int >> 80 <= time.time_ns() // 1_000_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_forked_processes_make_no_id_twice() -> None:
    made = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True).stdout.split()
    assert len(made) == 20 * 4 * 100
    assert len(set(made)) == len(made)


def test_a_python_that_makes_such_ids_itself_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_the_standard_library() -> uuid.UUID:
        raise NotImplementedError

    monkeypatch.setattr(uuid, "uuid7", of_the_standard_library, raising=False)
    monkeypatch.setitem(sys.modules, "uuid_utils.compat", None)
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    assert runpy.run_path(platform.__file__)["uuid7"] is of_the_standard_library
    monkeypatch.setattr(sys, "version_info", (3, 13, 9))
    with pytest.raises(ModuleNotFoundError, match="uuid_utils"):
        runpy.run_path(platform.__file__)
