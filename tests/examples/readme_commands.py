"""An example as its README says: its commands, in a copy of its folder, against the servers of the test."""

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import httpx
from forked_commands import Command, Forks
from psycopg.conninfo import conninfo_to_dict

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"^\$ (.*?)(?:  +#.*)?$", re.MULTILINE)
MODULES = {"uvicorn": ("python", "-m", "uvicorn")}
"""Programs that are started as modules of this Python."""


def url_of(dsn: str) -> str:
    """As a URL, which SQLAlchemy and Django read as well."""
    parts = {name: quote(str(value), safe="") for name, value in conninfo_to_dict(dsn).items()}
    user, name = parts.pop("user"), parts.pop("dbname")
    return f"postgresql://{user}@/{name}?" + "&".join(f"{key}={value}" for key, value in parts.items())


def answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


class Example:
    """The commands of its README, in their order, without those of Docker, which start what the test has."""

    def __init__(self, name: str, folder: Path, environment: Mapping[str, str], forks: Forks) -> None:
        self._folder, self._forks, self._started = folder, forks, list[Command]()
        shutil.copytree(EXAMPLES / name, folder)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PARTBOX_")}
        self._environment = kept | environment
        readme = (folder / "README.md").read_text(encoding="utf-8")
        lines = TYPED.findall("\n".join(CONSOLE.findall(readme)))
        self.commands = [line for line in lines if not line.startswith(("docker ", "export "))]

    def run(self, line: str) -> str:
        """Type it, wait for its end; what it prints."""
        process = self._forks.start(*self._command(line), cwd=self._folder, env=self._environment)
        out, err = process.communicate()
        assert process.returncode == 0, f"{line}: {out}{err}"
        return out

    def start(self, line: str, **environment: str) -> Path:
        """Type it and leave it running; the file with what it prints."""
        log = self._folder / f"log-{len(self._started)}"
        self._started.append(
            self._forks.start_into(log, *self._command(line), cwd=self._folder, env=self._environment | environment)
        )
        return log

    def text(self, name: str) -> str:
        """A file of its folder, which is a copy."""
        return (self._folder / name).read_text(encoding="utf-8")

    def end(self) -> None:
        """Ask all to leave; none may have ended before, or ends badly."""
        codes = []
        for process in reversed(self._started):
            ended = process.poll()
            process.send_signal(15)
            codes.append((process.args, ended, process.wait()))
        self._started.clear()
        assert [code for code in codes if code[1:] not in ((None, 0), (None, -15))] == []

    def kill(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()

    def _command(self, line: str) -> list[str]:
        words = [self._filled(word) for word in shlex.split(line)]
        return [*MODULES.get(words[0], words[:1]), *words[1:]]

    def _filled(self, word: str) -> str:
        return re.sub(r"\$(\w+)", lambda found: self._environment[found[1]], word)
