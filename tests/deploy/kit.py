"""The files of `deploy/`, and the programs that check them, where they are on this machine."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "partbox"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def program(name: str) -> str | None:
    """Its path: of this environment, or of the machine."""
    own = Path(sys.executable).with_name(name)
    return str(own) if own.exists() else shutil.which(name)


def needs(name: str, how: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(program(name) is None, reason=f"needs {name}: {how}")


def run(name: str, *arguments: str | Path) -> str:
    """What it prints; fails with that if it fails."""
    done = subprocess.run([program(name) or name, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def documents(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def pods(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The specifications of all pods among these documents."""
    for each in found:
        if each["kind"] in ("Deployment", "Job"):
            yield each["spec"]["template"]["spec"]
