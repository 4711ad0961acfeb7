"""PgBouncer in transaction mode, as Debian has it, on a free port of the loopback; and publishers that outlive it."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from ledger import Ledger, Publisher
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from waiting import eventually

from partbox.embedded import server_user

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

needed = pytest.mark.skipif(PROGRAM is None, reason="no PgBouncer on this machine: apt-get install pgbouncer")

SETTINGS = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = {size}
server_login_retry = 1
"""


class PgBouncer:
    """In front of the server of `dsn`, for `roles`, with `size` connections to it. All can enter its `folder`."""

    def __init__(self, dsn: str, folder: Path, roles: list[str], size: int = 20) -> None:
        self._server = conninfo_to_dict(dsn)
        self._folder = folder
        self._port = _free_port()
        users = folder / "users.txt"
        users.write_text("".join(f'"{role}" ""\n' for role in roles))
        to = {"host": self._server["host"], "port": self._server["port"], "listen": self._port}
        (folder / "pgbouncer.ini").write_text(SETTINGS.format(**to, users=users, size=size))
        for path in folder.iterdir():
            path.chmod(0o644)
        self._process: subprocess.Popen[bytes] | None = None

    def dsn(self, role: str = "postgres") -> str:
        """The test's database through it."""
        return make_conninfo(host="127.0.0.1", port=self._port, user=role, dbname=self._server["dbname"])

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()

    def start(self) -> None:
        """Start it and wait until it answers. It refuses to run as root, who lends it the user of the server."""
        user = server_user.find_server_user()
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(PROGRAM), str(self._folder / "pgbouncer.ini")],
                stdout=log,
                stderr=log,
                user=user.pw_uid if user else None,
                group=user.pw_gid if user else None,
                extra_groups=[] if user else None,
            )
        eventually(self._answers)

    def stop(self) -> None:
        """At once: every connection through it breaks."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log
        with suppress(psycopg.OperationalError), psycopg.connect(self.dsn(), prepare_threshold=None):
            return True
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PatientPublisher(Publisher):
    """Connects again when its connection breaks; whether the transaction of that moment was committed the log knows."""

    def run(self) -> None:
        super().run()
        while isinstance(self.error, psycopg.OperationalError) and not self.stopping.wait(0.05):
            self.error = None
            super().run()
        if isinstance(self.error, psycopg.OperationalError):
            self.error = None


@contextmanager
def publishing_patiently(ledger: Ledger, threads: int = 2) -> Iterator[None]:
    """Publishers at work as long as this lasts."""
    publishers = [PatientPublisher(ledger, seed) for seed in range(threads)]
    for publisher in publishers:
        publisher.start()
    try:
        yield
    finally:
        for publisher in publishers:
            publisher.stopping.set()
        for publisher in publishers:
            publisher.join()
    errors = [publisher.error for publisher in publishers if publisher.error]
    assert not errors, errors
