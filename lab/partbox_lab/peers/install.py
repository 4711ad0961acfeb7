"""Installers of peers into a folder, which use the package managers of their languages with the user's
configuration."""

import glob
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from partbox.errors import PartboxError


class Folder:
    """The folder that peers are installed into. A peer that is already installed is reused."""

    def __init__(self, path: Path, major: int, extensions: Collection[str]) -> None:
        self.path = path
        self.major = major  # of the PostgreSQL server
        self.extensions = extensions  # that the server already offers

    def python(self, name: str, pins: Sequence[str]) -> Path:
        """Return the interpreter of a virtual environment with these distributions."""
        home = self.path / name
        python = home / "bin" / "python"
        if not (home / "installed").exists():
            _run([sys.executable, "-m", "venv", "--clear", str(home)])
            _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins])
            (home / "installed").touch()
        return python

    def node(self, name: str, pins: Mapping[str, str]) -> Path:
        """Return a folder whose node_modules holds these packages."""
        if not shutil.which("npm"):
            raise PartboxError("npm is not installed")
        home = self.path / name
        if not (home / "installed").exists():
            home.mkdir(exist_ok=True)
            (home / "package.json").write_text(json.dumps({"private": True, "dependencies": dict(pins)}))
            _run(["npm", "install", "--no-audit", "--no-fund", "--loglevel", "error"], home)
            (home / "installed").touch()
        return home

    def debian(self, package: str) -> Path:
        """Return a folder with the files of a Debian package (`name=version`), which is not installed on the system."""
        if not shutil.which("apt-get"):
            raise PartboxError("apt-get is not installed, and this peer comes as a Debian package")
        home = self.path / package.partition("=")[0]
        if not (home / "installed").exists():
            home.mkdir(exist_ok=True)
            _run(["apt-get", "download", "--quiet", package], home)
            (file,) = glob.glob(f"{home}/*.deb")
            _run(["dpkg-deb", "--extract", file, str(home / "files")])
            (home / "installed").touch()
        return home / "files"


def versions(python: Path, *distributions: str) -> str:
    """Return the versions of distributions in an environment, as text."""
    program = "import sys, importlib.metadata as m; print(*(f'{n} {m.version(n)}' for n in sys.argv[1:]), sep=', ')"
    return _run([str(python), "-c", program, *distributions]).strip()


def node_versions(home: Path, *packages: str) -> str:
    """Return the versions of packages in a folder's node_modules, and that of Node, as text."""
    found = [json.loads((home / "node_modules" / name / "package.json").read_text())["version"] for name in packages]
    pairs = zip(packages, found, strict=True)
    node = _run(["node", "--version"]).strip().removeprefix("v")
    return ", ".join([*(f"{name} {version}" for name, version in pairs), f"Node {node}"])


def _run(command: list[str], folder: Path | None = None) -> str:
    """Return the output of a command. Raise PartboxError with the line that names the error if the command fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        lines = (ran.stderr.strip() or ran.stdout.strip() or "no reason given").splitlines()
        telling = next((line for line in lines if "rror" in line), lines[-1])
        raise PartboxError(f"{Path(command[0]).name} failed: {telling.strip()}")
    return ran.stdout
