"""Standbys of an embedded server."""

from partbox.embedded import server_user
from partbox.embedded.server import Server


def follow(standby: Server, primary: Server) -> str:
    """Start a standby of a running server from a base backup, and return its DSN."""
    with standby.guard_folder():
        server_user.make_private_folder(standby._pgdata, standby._programs.user)
        source = ["-h", str(primary._socket.parent), "-p", "5432", "-U", "postgres", "-c", "fast", "-X", "stream"]
        standby._programs.run_program("pg_basebackup", standby._pgdata, *source, "-R", "--no-sync")
        standby.start_guarded()
    return standby.dsn
