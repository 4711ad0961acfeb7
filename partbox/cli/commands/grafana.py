"""`partbox grafana`: writes the dashboards and alert rules that the package contains."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from partbox.cli.shell.options import argument, flag
from partbox.errors import PartboxError
from partbox.text.wording import format_count

app = typer.Typer(help="Dashboards and alert rules for Grafana and Prometheus.", no_args_is_help=True)

# The files of `grafana/` that are useful without a checkout, which excludes the programs that generate them.
SHIPPED = ("compose.yaml", "dashboards", "prometheus", "provisioning")

Folder = Annotated[Path, argument("DIR", "The folder to write to; created if missing.")]
Force = Annotated[bool, flag("Overwrite files that differ.", "--force")]


@app.command()
def export(folder: Folder, force: Force = False) -> None:
    """Write dashboards, provisioning, Prometheus configuration, alert rules with tests, and a compose file to a folder.

    If existing files differ, nothing is written unless --force is given.

    Example: partbox grafana export grafana
    """
    files = {folder / name: content for name, content in _read_shipped_files().items()}
    written = {path: content for path, content in files.items() if _read_if_present(path) != content}
    if not force and (changed := [path for path in written if path.exists()]):
        differ = "differs" if len(changed) == 1 else f"and {format_count(len(changed) - 1, 'more file')} differ"
        raise PartboxError(f"{changed[0]} {differ} from what would be written: add --force, or name another folder")
    for path, content in written.items():
        with _explain_os_error(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    typer.echo(f"{format_count(len(written), 'file')} written to {folder}, {len(files) - len(written)} unchanged")


def _read_shipped_files() -> dict[str, bytes]:
    package = Path(__file__).resolve().parents[2]
    inside = package / "grafana"
    source = inside if inside.is_dir() else package.parent / "grafana"
    paths = (path for name in SHIPPED for path in [source / name, *sorted((source / name).rglob("*"))])
    return {str(path.relative_to(source)): path.read_bytes() for path in paths if path.is_file()}


@contextmanager
def _explain_os_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "name a folder that you may write to"
        raise PartboxError(f"cannot write {path}: {error.strerror}: {remedy}") from None


def _read_if_present(path: Path) -> bytes | None:
    with _explain_os_error(path), suppress(FileNotFoundError):
        return path.read_bytes()
    return None
