"""The programs of the page on other languages publish as they stand there, by a role that may only publish."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from servers import OwnServer, cloned, new_server

from partbox import Outbox
from partbox.db.schema.grants import Roles
from partbox.db.schema.migrate import migrate
from partbox.embedded.processes import lock_file

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "languages.md").read_text(encoding="utf-8")
CACHE = ROOT / ".partbox" / "languages"
"""The drivers of each language, fetched once for all runs in this checkout."""
PATIENCE = 240.0
UNREACHABLE = re.compile(
    "ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH|dial tcp|no such host|unknown host|Connection refused|"
    "Connect(ion)? timed out|Network is unreachable|Temporary failure in name resolution",
    re.IGNORECASE,
)
"""The words of npm, Go and Maven for a registry that they cannot reach."""
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Language:
    """A program of the page: its block, its file, and the commands above it. `needs` are programs of the machine."""

    block: str
    file: str
    needs: tuple[str, ...]

    def section(self) -> str:
        """Return the section of the page that has the program."""
        return next(part for part in PAGE.split("\n### ") if f"```{self.block}\n" in part)

    def program(self) -> str:
        (found,) = re.findall(rf"^```{self.block}\n(.*?)^```", self.section(), re.MULTILINE | re.DOTALL)
        return str(found)

    def commands(self) -> list[str]:
        """Return the command that fetches the driver, and that which runs the program."""
        return re.findall(r"^\$ (.*)$", self.section(), re.MULTILINE)

    def run(self, folder: Path, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PARTBOX_", "PG"))}
        path = f"{kept['PATH']}:/usr/local/go/bin"
        return subprocess.run(
            ["bash", "-c", command],  # as a reader types it
            cwd=folder,
            env={**kept, "PATH": path, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )


LANGUAGES = [
    Language("js", "publish.mjs", ("node", "npm")),
    Language("go", "publish.go", ("go",)),
    Language("java", "Publish.java", ("java", "mvn")),
]


@pytest.fixture(params=LANGUAGES, ids=[each.block for each in LANGUAGES])
def language(request: pytest.FixtureRequest) -> Language:
    return request.param


@pytest.fixture
def folder(language: Language) -> Path:
    """A folder with the driver, fetched by the page's command. Skip the test without the language or its registry."""
    search = f"{os.environ['PATH']}:/usr/local/go/bin"
    if missing := [name for name in language.needs if not shutil.which(name, path=search)]:
        pytest.skip(f"needs {missing[0]}")
    fetch, _ = language.commands()
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / language.block
    with lock_file(CACHE / "lock"):
        done = folder / "fetched"
        if not done.exists() or done.read_text() != fetch:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / language.file).write_text(language.program())
            fetched = language.run(folder, fetch)
            said = fetched.stderr + fetched.stdout
            # A machine may have no way to the registry. Any other failure is one of the page's command.
            if fetched.returncode and UNREACHABLE.search(said):
                pytest.skip(f"{fetch!r} cannot reach its registry: {said.strip().splitlines()[-1]}")
            assert fetched.returncode == 0, said
            done.write_text(fetch)
    (folder / language.file).write_text(language.program())
    return folder


@pytest.fixture
def own_server() -> Iterator[OwnServer]:
    """A server that is reached by TCP, as JDBC needs it, with the table and the role of the page."""
    with socket.create_server((HOST, 0)) as found:
        port = int(found.getsockname()[1])
    with new_server({"listen_addresses": HOST, "port": str(port)}) as server:
        admin = make_conninfo(server.dsn, port=port)
        dsn = cloned(admin, "shop")
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("create role shop_app login password 'secret'")
            statements = re.findall(r"-c '([^']*)'", PAGE)
            assert len(statements) == 2
            for statement in statements:
                conn.execute(statement.encode())
            ((rules,),) = conn.execute("show hba_file").fetchall()
            Path(rules).write_text(f"local all all trust\nhost shop shop_app {HOST}/32 scram-sha-256\n")
            conn.execute("select pg_reload_conf()")
        migrate(dsn, roles=Roles(publishers=("shop_app",)))
        yield OwnServer(server, dsn)


def test_the_program_publishes_in_its_transaction_and_a_handler_gets_the_event(language, folder, own_server):
    where = f"{HOST}:{psycopg.conninfo.conninfo_to_dict(own_server.dsn)['port']}/shop"
    environment = {
        "DATABASE_URL": f"postgres://shop_app:secret@{where}",
        "JDBC_URL": f"jdbc:postgresql://{where}?user=shop_app&password=secret",
    }
    outbox, got = Outbox(own_server.dsn), []
    outbox.on("OrderPlaced")(lambda event: got.append((str(event.event_id), event.aggregate_id, event.payload)))

    first = language.run(folder, language.commands()[1], **environment)
    assert first.returncode == 0, first.stdout + first.stderr
    outbox.drain()
    assert got == [(first.stdout.strip(), "7", {"order_id": 7, "total": "42.00"})]

    again = language.run(folder, language.commands()[1], **environment)
    assert again.returncode != 0
    assert "duplicate key" in again.stdout + again.stderr
    with psycopg.connect(own_server.dsn) as conn:
        assert conn.execute("select count(*) from partbox.record").fetchone() == (1,)
