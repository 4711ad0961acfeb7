"""PostgreSQL's own programs (initdb, pg_ctl), run as the server's user."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from partbox.errors import PartboxError, SettingsError

if TYPE_CHECKING:
    import pwd


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs in one folder; `user` runs them, None means ourselves."""

    binaries: Path
    user: "pwd.struct_passwd | None"

    def run(self, program: str, pgdata: Path, *arguments: str) -> None:
        """Run a program on `pgdata`, out of reach of the terminal's signals; PartboxError says why it failed.

        It runs inside that folder and calls it ".": pg_ctl hands paths to a shell, which would expand them.
        """
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
            reason = telling(result.stderr) or " ".join((result.stderr or result.stdout).split())
            raise PartboxError(f"{program} failed in {pgdata}: {reason}")


def telling(messages: str) -> str:
    """The messages of PostgreSQL that explain a failure, in one line."""
    return "; ".join(dict.fromkeys(re.findall(r"(?:FATAL|PANIC|DETAIL|HINT|error): .*", messages)))
