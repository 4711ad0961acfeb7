"""Prometheus as Debian has it: the programs `prometheus` and `promtool`."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

needed = pytest.mark.skipif(
    not (shutil.which("promtool") and shutil.which("prometheus")),
    reason="no prometheus on this machine: apt-get install prometheus",
)


def promtool(*arguments: str | Path) -> str:
    """What it prints; fails with that if it fails."""
    env = os.environ | {"GOGC": "400"}  # it collects its garbage for a third of its time
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
