"""Runs an embedded PostgreSQL with the schema of partbox, prints its DSN, and opens psql; see scripts/db."""

import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

from partbox.db.schema.migrate import migrate
from partbox.embedded import address, programs, server_user
from partbox.errors import PartboxError


def main(root: Path) -> int:
    """Run the server whose data is below `root` until psql, or this process, is told to end. Return an exit code."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C within psql is for psql
        signal.signal(number, lambda *_: stopped.set())
    folder = root / ".partbox" / "db"
    if server_user.find_server_user() and server_user.find_closed_folder(folder):
        folder = address.find_default_folder()
    try:
        dsn = address.resolve(f"{address.PREFIX}{folder}")
        migrate(dsn)
    except PartboxError as error:
        print(f"db: {error}", file=sys.stderr)
        return 1
    print(dsn, flush=True)
    if sys.stdin.isatty():
        return subprocess.call([shutil.which("psql") or programs.find_binaries() / "psql", dsn])
    print("Ctrl-C ends it", file=sys.stderr)
    stopped.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
