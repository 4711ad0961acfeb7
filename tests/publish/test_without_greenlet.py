"""SQLAlchemy alone, as pip installs it from 2.1 on: without greenlet its asynchronous module cannot be imported."""

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("sqlalchemy_alone.py")
BLOCKED = """
import runpy, sys
sys.modules["greenlet"] = None  # an import of it raises ModuleNotFoundError
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


def test_publishing_collecting_migrating_and_transactional_handlers_work_with_sqlalchemy_alone(empty_dsn: str) -> None:
    """`scripts/wheel` runs the same program in an environment of its own."""
    program = [sys.executable, "-W", "error", "-c", BLOCKED, str(PROGRAM), empty_dsn]
    ended = subprocess.run(program, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
