"""An outbox to be examined: its workers, and what `partbox doctor` says about it."""

import json
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import psycopg
from doctor_app import ill
from forked_commands import Command, shared
from planted_records import Planter
from psycopg.conninfo import conninfo_to_dict
from waiting import eventually

from partbox.doctor.doctor import examine_outbox
from partbox.doctor.limits import LONG_TRANSACTION, limits_of
from partbox.settings import load
from partbox.supervisor.embedded import EmbeddedWorker

FAST = {"lease": "2s", "heartbeat": "300ms", "retry": "fixed:0.1", "drain_timeout": "2s"}
PATIENCE = 120.0
OLD = """
insert into partbox.record (partition, event_id, event_type, created_at)
select g % 256, gen_random_uuid(), 'Placed', now() - interval '9 days' from generate_series(1, {}) g
"""

Finding = dict[str, Any]


class Clinic:
    """`run` runs a command as its arguments, and gives its exit code and output; `processes`: workers are nodes of
    processes, as people run them, else threads of this process, which cost a fraction."""

    def __init__(self, conn: psycopg.Connection[Any], folder: Path, run: Callable[..., tuple[int, str, str]]) -> None:
        self.conn = conn
        self.dsn = conn.info.dsn
        self.plant = Planter(conn)
        self.folder = folder
        self.run = run
        self.processes = False
        self.nodes: list[Command] = []
        self.workers: list[EmbeddedWorker] = []

    def doctor(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """The exit code and what it says."""
        code, out, err = self.run("doctor", "--json", *arguments)
        assert err == ""
        return code, json.loads(out)

    def findings(self, over: float = LONG_TRANSACTION) -> list[Finding]:
        """Its findings but for notes: test servers have `fsync` off. In Python: a command costs twice as much."""
        settings = load(dsn=self.dsn)
        report = examine_outbox(lambda: self.dsn, settings, limits_of(settings, over))
        found = [json.loads(orjson.dumps(each)) for each in report.findings]
        return [each for each in found if each["severity"] != "note"]

    def nothing(self) -> bool:
        """Whether it finds nothing; says what it found."""
        found = self.findings()
        assert found == [], str(found)
        return True

    def causes(self, over: float = LONG_TRANSACTION) -> list[str]:
        return [each["cause"] for each in self.findings(over)]

    def one(self, cause: str, over: float = LONG_TRANSACTION) -> Finding:
        """The finding of this cause, which must be the only one of it."""
        said = self.findings(over)
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

    def work(self, name: str = "node-a", **settings: Any) -> Callable[[], object]:
        """Start a worker; it is ended with the test. What is given back makes it leave, and waits for that."""
        if self.processes:
            node = self.node(name, **settings)
            return lambda: (node.send_signal(signal.SIGTERM), node.wait(PATIENCE))
        self.workers.append(ill(self.dsn, **FAST | {"node": name} | settings).worker())
        self.workers[-1].start()
        return self.workers[-1].stop

    def dies(self, name: str = "node-a") -> None:
        """A worker that owns everything, and that dies; returns when its lease is over."""
        if self.processes:
            node = self.node(name)
            self.owned()
            self.kill(node)
        else:
            self.ghost(name, lease="1 s")
            self.owned_by_the_first()
            self.conn.execute("update partbox.instance set heartbeat_at = now() - interval '2 s'")
        over = "select count(*) from partbox.instance where heartbeat_at + lease < now()"
        eventually(lambda: self.number(over) == 1, PATIENCE)

    def node(self, name: str = "node-a", **settings: Any) -> Command:
        """Start a node of one worker process; it is ended with the test."""
        here = str(Path(__file__).parent)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
        given = FAST | {"dsn": self.dsn, "node": name} | settings
        variables = {f"PARTBOX_{setting.upper()}": str(value) for setting, value in given.items()}
        environment = kept | variables | {"PYTHONPATH": os.pathsep.join([here, kept.get("PYTHONPATH", "")])}
        command = ("partbox", "worker", "doctor_app:outbox", "--processes", "1")
        log = self.folder / f"{name}.log"
        self.nodes.append(shared().start_into(log, *command, cwd=self.folder, env=environment))
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

    def old(self, count: int) -> None:
        """Publish so many events nine days ago."""
        self.conn.execute(OLD.format(count).encode())

    def owned_by_the_first(self) -> None:
        """Give every partition to the process that joined first."""
        self.conn.execute(
            "update partbox.partition set owner = instance_id, assignee = instance_id, claimed_at = now()"
            " from (select instance_id from partbox.instance order by started_at limit 1) i"
        )

    def session(self, application: str, **options: Any) -> psycopg.Connection[Any]:
        """Another session of the database, to be closed by who opens it."""
        return psycopg.connect(**conninfo_to_dict(self.dsn), application_name=application, **options)

    def kill(self, node: Command) -> None:
        """End all processes of a node at once."""
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()
        for node in self.nodes:
            if node.poll() is None:
                self.kill(node)
