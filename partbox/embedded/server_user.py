"""The system user that runs the embedded server for root, because PostgreSQL refuses to run as root. Nothing that
exists is opened to that user: a data folder out of reach is refused, and binaries out of reach are copied."""

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from partbox.embedded.processes import lock_file
from partbox.errors import SettingsError

# Windows has no pwd.
if TYPE_CHECKING:
    import pwd

NAME = "partbox"
# The server's files for root: readable by all, as /var/lib is, and writable by root alone.
STATE = Path("/var/lib/partbox")

_BUILD_ONLY = shutil.ignore_patterns("include", "pgxs", "pkgconfig", "*.a")


def find_server_user() -> "pwd.struct_passwd | None":
    """Return the system user that runs the server if this process is root, or None otherwise."""
    # The user is created if missing.
    if os.geteuid() != 0:
        return None
    if not (user := _find_user()):
        with lock_file(make_open_folder(STATE) / "lock"):
            user = _find_user() or _add_user()
    return user


def _find_user() -> "pwd.struct_passwd | None":
    import pwd

    with suppress(KeyError):
        return pwd.getpwnam(NAME)
    return None


def _add_user() -> "pwd.struct_passwd":
    program = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    remedy = "create the user, or run partbox as a user other than root"
    if program is None:
        raise SettingsError(f"the system user {NAME!r} is missing and so is useradd: {remedy}")
    command = [program, "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
    result = subprocess.run(
        [*command, "--shell", "/usr/sbin/nologin", NAME], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise SettingsError(f"cannot create the system user {NAME!r} ({' '.join(result.stderr.split())}): {remedy}")
    if (made := _find_user()) is None:
        raise SettingsError(f"{program} made no user {NAME!r}: {remedy}")
    return made


def find_closed_folder(path: Path) -> Path | None:
    """Return the first folder on the way to `path` that other users may not enter, or None."""
    # Missing folders are left out.
    # The embedded server's user cannot reach a path below such a folder.
    way = [folder for folder in (*reversed(path.parents), path) if folder.exists()]
    return next((folder for folder in way if not folder.stat().st_mode & stat.S_IXOTH), None)


def list_temporary_folders() -> list[Path]:
    """Return the folders for temporary files that the embedded server's user can enter, the usual one first."""
    folders = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    return [each for each in folders if each.is_dir() and (os.geteuid() != 0 or find_closed_folder(each) is None)]


def make_open_folder(path: Path) -> Path:
    """Create a folder and its missing parents. If root calls this function, let other users enter them."""
    # Existing folders stay as they are.
    mode = 0o755 if os.geteuid() == 0 else 0o700
    for folder in reversed([folder for folder in (path, *path.parents) if not folder.exists()]):
        try:
            folder.mkdir()
        except FileExistsError:
            # Another process was first.
            continue
        # mkdir's own mode would be subject to the umask.
        folder.chmod(mode)
    return path


def make_private_folder(path: Path, user: "pwd.struct_passwd | None") -> Path:
    """Create the folder `path` for `user` alone. Raise SettingsError if others own or can enter an existing one."""
    owner = user.pw_uid if user else os.geteuid()
    try:
        path.mkdir(mode=0o700)
        if user:
            os.chown(path, user.pw_uid, user.pw_gid)
    except FileExistsError:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or found.st_mode & 0o077:
            raise SettingsError(f"{path} is not a folder that only the server can enter: remove it") from None
    return path


def make_executable(binaries: Path) -> Path:
    """Return a folder with PostgreSQL's programs that other users can run, after copying the programs if necessary."""
    if find_closed_folder(binaries) is None:
        return binaries
    prefix = binaries.parent
    digest = hashlib.sha256((binaries / "postgres").read_bytes()).hexdigest()
    copy = STATE / f"postgresql-{digest[:12]}"
    with lock_file(make_open_folder(STATE) / "lock"):
        if not copy.exists():
            _copy_folder(prefix, copy)
    return copy / prefix.parent.name / prefix.name / binaries.name


def _copy_folder(prefix: Path, copy: Path) -> None:
    # The libraries that the programs need are copied to the same relative places.
    new = copy.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(prefix, new / prefix.parent.name / prefix.name, ignore=_BUILD_ONLY)
    # A wheel's libraries are beside its package, and its programs find them relative to themselves.
    libraries = prefix.parent.with_suffix(".libs")
    if libraries.is_dir():
        shutil.copytree(libraries, new / libraries.name)
    for path in (new, *new.rglob("*")):
        path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
    new.rename(copy)
