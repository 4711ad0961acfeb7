"""`partbox grafana`: the dashboards and alert rules that travel inside the package."""

from pathlib import Path
from typing import Annotated

import typer

from partbox.errors import PartboxError
from partbox.text.wording import counted

app = typer.Typer(help="Dashboards and alert rules for Grafana and Prometheus.", no_args_is_help=True)

SHIPPED = ("compose.yaml", "dashboards", "prometheus", "provisioning")
"""The files of `grafana/` that are of use without the checkout; the programs that write them are not."""

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", show_default=False, help="The folder to write to; created if missing.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")]


@app.command()
def export(folder: Folder, force: Force = False) -> None:
    """Write dashboards, provisioning, Prometheus configuration, alert rules with tests, and a compose file to a folder.

    Files that are there and differ are left alone, all of them, unless --force is given.

    Example: partbox grafana export grafana
    """
    files = {folder / name: content for name, content in _shipped().items()}
    written = {path: content for path, content in files.items() if _read(path) != content}
    if not force and (changed := [path for path in written if path.exists()]):
        differ = "differs" if len(changed) == 1 else f"and {counted(len(changed) - 1, 'more file')} differ"
        raise PartboxError(
            f"{changed[0]} {differ} from what would be written: repeat it with --force, or name another folder"
        )
    for path, content in written.items():
        _write(path, content)
    typer.echo(f"{counted(len(written), 'file')} written to {folder}, {len(files) - len(written)} as they were")


def _shipped() -> dict[str, bytes]:
    """The content of each file, by its path below the folder."""
    package = Path(__file__).resolve().parents[2]
    inside = package / "grafana"
    source = inside if inside.is_dir() else package.parent / "grafana"
    paths = (path for name in SHIPPED for path in [source / name, *sorted((source / name).rglob("*"))])
    return {str(path.relative_to(source)): path.read_bytes() for path in paths if path.is_file()}


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(path, error) from None


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise _refused(path, error) from None


def _refused(path: Path, error: OSError) -> PartboxError:
    return PartboxError(f"cannot write {path}: {error.strerror}: name a folder that you may write to")
