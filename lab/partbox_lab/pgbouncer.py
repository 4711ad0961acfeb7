"""PgBouncer in transaction mode, on a free port of the loopback."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from partbox.embedded import server_user

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

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
    """A pooler in front of the server of `dsn`, for `roles`, with `size` connections to the server. All users can enter
    its `folder`."""

    def __init__(self, dsn: str, folder: Path, roles: list[str], size: int = 20) -> None:
        self._server = conninfo_to_dict(dsn)
        self._folder = folder
        self._port = _find_free_port()
        users = folder / "users.txt"
        users.write_text("".join(f'"{role}" ""\n' for role in roles))
        to = {"host": self._server["host"], "port": self._server["port"], "listen": self._port}
        (folder / "pgbouncer.ini").write_text(SETTINGS.format(**to, users=users, size=size))
        for path in folder.iterdir():
            path.chmod(0o644)
        self._process: subprocess.Popen[bytes] | None = None

    def dsn(self, role: str = "postgres") -> str:
        """Return the DSN of the database behind the pooler."""
        return make_conninfo(host="127.0.0.1", port=self._port, user=role, dbname=self._server["dbname"])

    @property
    def log(self) -> str:
        """The text that the pooler has logged."""
        return (self._folder / "log").read_text()

    @property
    def has_ended(self) -> bool:
        """True if the pooler does not run, because it refused to start, was stopped or was never started."""
        return self._process is None or self._process.poll() is not None

    def start(self) -> None:
        """Start the pooler without waiting until it answers. It refuses to run as root, who lends it the server's
        user."""
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

    def stop(self) -> None:
        """Kill the pooler, which breaks every connection through it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
