"""`scripts/cloud-bench` on three hosts that are this machine: its programs, JSON and charts, and nothing left."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOUND = [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]


@pytest.mark.soak
@pytest.mark.skipif(not FOUND, reason="needs the PostgreSQL of Debian's packages")
def test_a_rehearsal_measures_draws_and_leaves_nothing_on_the_hosts(tmp_path):
    options = ["--quick", "--rates", "20,50,100", "--processes", "1", "--into", tmp_path / "out", "--data", tmp_path]
    here = [
        "--server-address",
        "127.0.0.1",
        "--load-address",
        "127.0.0.1",
        "--shell",
        "bash -c",
        "--python",
        sys.executable,
    ]
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents[:3]:
        folder.chmod(folder.stat().st_mode | 0o011)  # PostgreSQL's user passes through
    command = [ROOT / "scripts" / "cloud-bench", "a", "b", "c", *options, *here]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "run.json").read_text())
    assert [run["rate"] for run in report["runs"]] == [20, 50, 100, 50]
    assert all(run["published"] > 0 and run["unanswered"] == 0 for run in report["runs"])
    assert {path.name for path in (tmp_path / "out").glob("*.svg")} == {"latency.svg", "day.svg", "cost.svg"}
    assert not (tmp_path / "partbox-cloud-bench").exists()
