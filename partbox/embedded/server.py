"""A PostgreSQL server over one folder, started and stopped by PostgreSQL's own programs. The server listens on a Unix
socket in a folder that only its user and root can enter, and therefore trusts every connection. The server's folder
holds PostgreSQL's own data with server.log in `pgdata`, the socket in `run`, unless its path would be too long,
and the file `start.lock`, which is locked while the server is started or stopped."""

import hashlib
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import psutil
from psycopg.conninfo import make_conninfo

from partbox.embedded import processes, programs, server_user
from partbox.embedded.processes import lock_file
from partbox.embedded.programs import Programs, select_messages
from partbox.errors import PartboxError, SettingsError

# Bytes. The system's limit is 107.
_SOCKET_PATH_LIMIT = 100
# Bytes that a new database needs on the disk.
_ROOM_NEEDED = 128 * 1024 * 1024
_LISTEN = {"listen_addresses": "", "port": "5432", "log_checkpoints": "off"}
_PATIENCE = 60.0  # seconds


class Server:
    """An embedded PostgreSQL server that keeps its data in one folder.

    `binaries` is a folder with initdb, pg_ctl and postgres, by default that of `programs.binaries`. `options` are
    server settings. Raise SettingsError if a folder cannot be used."""

    def __init__(
        self, data: Path, *, binaries: Path | None = None, options: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.data_folder = data.expanduser().resolve()
        self.options = {**_LISTEN, **options}
        self._binaries = binaries
        self._pgdata = self.data_folder / "pgdata"
        self._log = self._pgdata / "server.log"

    @property
    def dsn(self) -> str:
        return make_conninfo(host=str(self._socket.parent), port=5432, user="postgres", dbname="postgres")

    @property
    def is_running(self) -> bool:
        return self._postmaster_pid is not None

    def start(self) -> str:
        """Start the server unless it runs, and return its DSN. Create the database if the folder has none."""
        with self.guard_folder():
            self.start_guarded()
        return self.dsn

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """Stop the PostgreSQL server in a shutdown mode of pg_ctl if it runs, and wait until it has ended."""
        if self.data_folder.exists():
            with self.guard_folder():
                self.stop_guarded(mode)

    def kill(self) -> None:
        """Kill the server by SIGKILL, as a crash would, and wait until all of its processes have ended."""
        if (pid := self._postmaster_pid) is None:
            return
        postmaster = psutil.Process(pid)
        # A suspended postmaster starts no more children.
        postmaster.suspend()
        # The postmaster is killed last: once it is gone, a commit that waits for a standby stops waiting and becomes
        # visible.
        server_processes = [*postmaster.children(), postmaster]
        for each in server_processes:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        _wait_until(
            lambda: not any(processes.is_alive(each.pid) for each in server_processes), "the killed server did not end"
        )

    @contextmanager
    def guard_folder(self) -> Iterator[None]:
        """Keep other processes from starting or stopping the server during the `with` block."""
        # SettingsError is raised if the folder cannot be used.
        self._prepare_folder()
        with lock_file(self.data_folder / "start.lock"):
            yield

    def start_guarded(self) -> None:
        """Start the server unless it runs, and wait until it is ready. The caller holds the lock of `guard_folder`."""
        if not self.is_running:
            self._initialise_data()
            self._launch_server()
        _wait_until(self._is_ready, f"the server in {self.data_folder} (log: {self._log}) does not become ready")

    def stop_guarded(self, mode: str = "fast") -> None:
        """Stop the server if it runs. The caller holds the lock of `guard_folder`."""
        if self.is_running:
            self._programs.run_program("pg_ctl", self._pgdata, "stop", "-m", mode, "-w", "-t", "60")
            # The folder is gone already, or holds a file of somebody else.
            with suppress(OSError):
                self._socket.parent.rmdir()

    @property
    def _postmaster_pid(self) -> int | None:
        # The postmaster is the server's main process. The pid file may be left by a crash and name another process by
        # now.
        try:
            pid = int((self._pgdata / "postmaster.pid").read_text().split("\n", 1)[0])
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return pid if self._socket_setting in processes.read_arguments(pid) else None

    @property
    def _socket_setting(self) -> str:
        # The server's postmaster is recognised by this setting in its command line.
        return f"unix_socket_directories={self._socket.parent}"

    @cached_property
    def _socket(self) -> Path:
        near = self.data_folder / "run" / ".s.PGSQL.5432"
        if len(os.fsencode(near)) <= _SOCKET_PATH_LIMIT and not {",", '"'} & set(str(near)):
            return near
        return Path("/tmp") / f"partbox-{hashlib.sha256(os.fsencode(self.data_folder)).hexdigest()[:16]}" / near.name

    @cached_property
    def _programs(self) -> Programs:
        user = server_user.find_server_user()
        binaries = (self._binaries or programs.find_binaries(self._pgdata)).resolve()
        if not (binaries / "initdb").exists():
            raise SettingsError(f"{binaries} holds no initdb: name the folder of PostgreSQL's server programs")
        return Programs(server_user.make_executable(binaries) if user else binaries, user)

    def _prepare_folder(self) -> None:
        # Everything that may be refused is checked before anything is written. The folder is open to others for root,
        # who needs another user to run the server, and private otherwise.
        _check_folder(self.data_folder)
        try:
            _ = self._programs
            server_user.make_open_folder(self.data_folder)
        except OSError as error:
            raise SettingsError(
                f"cannot prepare {self.data_folder}: {error.strerror}: {error.filename}: name a folder that "
                "you may make and "
                "write, such as embedded:./db"
            ) from None

    def _initialise_data(self) -> None:
        # The database files have a temporary name first, so that an interruption leaves no half-made database.
        if self._pgdata.exists():
            return
        free = shutil.disk_usage(self.data_folder).free
        if free < _ROOM_NEEDED:
            raise SettingsError(
                f"the disc of {self.data_folder} has {free >> 20} MB free and a new database needs "
                f"{_ROOM_NEEDED >> 20} MB: "
                "free some, or name a folder elsewhere"
            )
        new = self.data_folder / "pgdata.new"
        shutil.rmtree(new, ignore_errors=True)
        server_user.make_private_folder(new, self._programs.user)
        sync = ["--no-sync"] if self.options.get("fsync") == "off" else []
        settings = ["-U", "postgres", "-E", "UTF8", "--no-locale", "--auth-local=trust", "--auth-host=reject"]
        self._programs.run_program("initdb", new, *settings, *sync)
        new.rename(self._pgdata)

    def _launch_server(self) -> None:
        socket_lock = self._socket.with_name(f"{self._socket.name}.lock")
        # The pid in a file left by a crash may now be a zombie's or another process's, and PostgreSQL would refuse to
        # start. Running backends are recognised without the files, by their shared memory key.
        for left in (self._pgdata / "postmaster.pid", self._socket, socket_lock):
            left.unlink(missing_ok=True)
        server_user.make_private_folder(self._socket.parent, self._programs.user)
        settings = [*(f"{name}={value}" for name, value in self.options.items()), self._socket_setting]
        options = shlex.join(part for setting in settings for part in ("-c", setting))
        _wait_until(lambda: self._try_launch(options), f"old processes of the server in {self.data_folder} do not end")

    def _try_launch(self, options: str) -> bool:
        # The result is False while backends of a killed server still run.
        logged = self._log.stat().st_size if self._log.exists() else 0
        try:
            self._programs.run_program(
                "pg_ctl", self._pgdata, "start", "-l", self._log.name, "-o", options, "-w", "-t", "300"
            )
        except PartboxError:
            lines = self._log.read_bytes()[logged:].decode(errors="replace") if self._log.exists() else ""
            if "is still in use" in lines:
                return False
            if reason := select_messages(lines):
                raise PartboxError(f"PostgreSQL does not start in {self.data_folder}: {reason}") from None
            raise
        return True

    def _is_ready(self) -> bool:
        try:
            return "ready" in (self._pgdata / "postmaster.pid").read_text().splitlines()[-1]
        except (FileNotFoundError, IndexError):
            return False


def _check_folder(data: Path) -> None:
    # A folder is refused if the server's user cannot reach it, or if it holds something else.
    if data.exists() and not data.is_dir():
        raise SettingsError(f"{data} is not a folder: name another one for the database")
    if os.geteuid() == 0 and (folder := server_user.find_closed_folder(data)):
        raise SettingsError(
            f"{folder} is closed to the system user {server_user.NAME!r}, which runs PostgreSQL for root: "
            f"choose a folder whose parents are open (such as one below {server_user.STATE}), or run as another user"
        )
    if not data.exists():
        return
    if not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        raise SettingsError(f"{data} belongs to another user: name another folder for the database")
    if not (data / "start.lock").exists() and any(data.iterdir()):
        raise SettingsError(f"{data} holds other files: name a new or empty folder for the database")


def _wait_until(check: Callable[[], bool], failure: str) -> None:
    end = time.monotonic() + _PATIENCE
    while not check():
        if time.monotonic() > end:
            raise PartboxError(f"{failure} within {_PATIENCE:g} s")
        time.sleep(0.01)
