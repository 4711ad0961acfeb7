"""A program of the page on frameworks in the places where it runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "frameworks.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```python\n# ([\w/]+\.py)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
CACHE = Path(__file__).resolve().parents[2] / ".mypy_cache" / "user"
AT_ONCE = 16
KEEP_ALIVE = 86_400  # seconds; one that a server closes for idleness as the next request comes fails that request
PARTBOX = str(Path(sys.executable).with_name("partbox"))

# Asked from another process, so that the server has its loop to itself.
ASKING = """
import asyncio, sys
import httpx

async def ask():
    async with httpx.AsyncClient(base_url=sys.argv[1], timeout=120) as client:
        numbers = iter(range(int(sys.argv[2])))

        async def some():
            for number in numbers:
                answer = await client.post(f"/orders?reference=A-{number}")
                assert answer.status_code == 201, answer.text

        await asyncio.gather(*(some() for _ in range(int(sys.argv[3]))))

asyncio.run(ask())
"""


def lines(*programs: str) -> int:
    """How many there are, without the empty ones."""
    return len([line for program in programs for line in program.splitlines() if line.strip()])


def said(folder: Path, *command: str) -> str:
    """What a module prints that is run in this folder."""
    ended = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr


class Place:
    """A folder with the program, beside a database; its commands complain of nothing."""

    def __init__(self, folder: Path, dsn: str, **environment: str) -> None:
        parts = conninfo_to_dict(dsn)
        database = {"PGHOST": parts["host"], "PGUSER": parts["user"], "PGDATABASE": parts["dbname"]}
        self.folder = folder
        self._environment = {**os.environ, **database, "PARTBOX_DSN": dsn, **environment}
        self.write("asking.py", ASKING)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text, encoding="utf-8")

    def run(self, *command: str, **environment: str) -> str:
        """What the command prints."""
        # A worker process ends beside daemon threads, which keep sockets: on a loaded machine they are open then.
        warned = () if command[0] == PARTBOX else ("-W", "always::ResourceWarning")
        ended = subprocess.run(
            [sys.executable, *warned, *command],
            cwd=self.folder,
            env=self._environment | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        told = ended.stdout + ended.stderr
        assert ended.returncode == 0, told
        assert "Traceback" not in told
        assert "Warning" not in told, told
        return ended.stdout
