"""Applications that patch psycopg, by what tracers do. Fault: a patch changes the text of statements that are ours."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("patched_driver.py")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("patch", ["opentelemetry", "proxies", "methods"])
def test_worker_connections_avoid_every_patch_of_psycopg_and_publishing_works_with_all_patches(
    empty_dsn: str, patch: str, when: str
) -> None:
    program = [sys.executable, str(PROGRAM), patch, when, empty_dsn]
    ended = subprocess.run(program, capture_output=True, text=True, check=False, timeout=100)
    assert ended.returncode == 0, ended.stderr
