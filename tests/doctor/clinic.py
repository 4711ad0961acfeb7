"""An outbox to be examined: its worker nodes, and what `partbox doctor` says about it."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from planting import Planter
from psycopg.conninfo import conninfo_to_dict
from waiting import eventually

FAST = {"lease": "2s", "heartbeat": "300ms", "retry": "fixed:0.1", "drain_timeout": "2s"}
PATIENCE = 40.0

Finding = dict[str, Any]


class Clinic:
    """`run` runs a command as its arguments, and gives its exit code and output."""

    def __init__(self, conn: psycopg.Connection[Any], folder: Path, run: Callable[..., tuple[int, str, str]]) -> None:
        self.conn = conn
        self.dsn = conn.info.dsn
        self.plant = Planter(conn)
        self.folder = folder
        self.run = run
        self.nodes: list[subprocess.Popen[bytes]] = []

    def doctor(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """The exit code and what it says."""
        code, out, err = self.run("doctor", "--json", *arguments)
        assert err == ""
        return code, json.loads(out)

    def findings(self, *arguments: str) -> list[Finding]:
        """What it finds but for notes: test servers have `fsync` off."""
        _, said = self.doctor(*arguments)
        return [each for each in said["findings"] if each["severity"] != "note"]

    def nothing(self) -> bool:
        """Whether it finds nothing; says what it found."""
        found = self.findings()
        assert found == [], str(found)
        return True

    def causes(self, *arguments: str) -> list[str]:
        return [each["cause"] for each in self.findings(*arguments)]

    def one(self, cause: str, *arguments: str) -> Finding:
        """The finding of this cause, which must be the only one of it."""
        said = self.findings(*arguments)
        (found,) = [each for each in said if each["cause"] == cause] or [said]
        assert isinstance(found, dict), said
        return found

    def follow(self, remedy: str) -> str:
        """Run the command of ours, or execute the SQL, that a remedy holds in backticks; what it printed."""
        words = remedy.split("`")[1]
        if not words.startswith("partbox "):
            self.conn.execute(words)
            return ""
        code, out, err = self.run(*shlex.split(words)[1:])
        assert code == 0, (words, out, err)
        return out

    def node(
        self, name: str = "node-a", *arguments: str, processes: int = 1, **settings: Any
    ) -> subprocess.Popen[bytes]:
        """Start a node of worker processes; it is ended with the test."""
        here = str(Path(__file__).parent)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
        given = FAST | {"dsn": self.dsn, "node": name} | settings
        variables = {f"PARTBOX_{setting.upper()}": str(value) for setting, value in given.items()}
        flags = ["--processes", str(processes), *arguments]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.nodes.append(
                subprocess.Popen(
                    [
                        sys.executable,
                        "-c",
                        "from partbox.cli import main; main()",
                        "worker",
                        "doctor_app:outbox",
                        *flags,
                    ],
                    cwd=self.folder,
                    env=kept | variables | {"PYTHONPATH": os.pathsep.join([here, kept.get("PYTHONPATH", "")])},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        return self.nodes[-1]

    def owned(self, partitions: int = 256) -> None:
        """Wait until so many partitions have an owner that is there."""
        eventually(lambda: self.owners() == partitions, PATIENCE, 0.05)

    def owners(self) -> int:
        return self.number(
            "select count(*) from partbox.partition p join partbox.instance i on i.instance_id = p.owner"
        )

    def number(self, statement: str) -> int:
        row = self.conn.execute(statement.encode()).fetchone()
        return int(row[0]) if row and row[0] is not None else 0

    def ghost(self, name: str = "node-ghost", *, lease: str = "1 h", version: str = "0.1.0") -> None:
        """A process that lives as far as anybody can tell, and does nothing."""
        self.conn.execute(
            "insert into partbox.instance (subscription, node, hostname, pid, version, lease)"
            " values ('default', %s, %s, 4711, %s, %s::interval)",
            [name, name, version, lease],
        )

    def session(self, application: str, **options: Any) -> psycopg.Connection[Any]:
        """Another session of the database, to be closed by who opens it."""
        return psycopg.connect(**conninfo_to_dict(self.dsn), application_name=application, **options)

    def kill(self, node: subprocess.Popen[bytes]) -> None:
        """End all processes of a node at once."""
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()

    def close(self) -> None:
        for node in self.nodes:
            if node.poll() is None:
                self.kill(node)
