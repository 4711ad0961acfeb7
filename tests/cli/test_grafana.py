"""`partbox grafana export`: what an installation without the checkout needs of `grafana/`."""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
OURS = {"source", "thresholds.toml"}
"""What writes the dashboards and rules, and is of no use without the checkout."""


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_everything_but_the_generators_is_written(partbox, here):
    ran = partbox("grafana", "export", "new/grafana")
    wanted = {name: content for name, content in files(ROOT / "grafana").items() if name.split("/")[0] not in OURS}
    assert files(here / "new" / "grafana") == wanted
    assert (ran.code, ran.out) == (0, f"{len(wanted)} files written to new/grafana, 0 unchanged\n")


def test_export_writes_the_folders_that_the_compose_file_mounts(partbox, here):
    partbox("grafana", "export", ".")
    compose = yaml.safe_load((here / "compose.yaml").read_text())
    mounts = [mount.split(":")[0] for each in compose["services"].values() for mount in each["volumes"]]
    folders = [mount for mount in mounts if mount.startswith("./")]
    assert len(folders) == 3
    assert all((here / folder).is_dir() for folder in folders)


def test_export_writes_nothing_when_a_file_was_changed_unless_forced(partbox, here):
    partbox("grafana", "export", "grafana")
    changed, gone = here / "grafana" / "compose.yaml", here / "grafana" / "dashboards" / "overview.json"
    changed.write_text("mine")
    gone.unlink()
    assert "grafana/compose.yaml differs from what would be written: add --force" in (
        partbox("grafana", "export", "grafana").error
    )
    assert (changed.read_text(), gone.exists()) == ("mine", False)

    ran = partbox("grafana", "export", "grafana", "--force")
    assert ran.out.startswith("2 files written to grafana, ")
    assert changed.read_text() != "mine"
    assert gone.exists()


def test_a_second_export_changes_nothing(partbox):
    partbox("grafana", "export", "grafana")
    assert partbox("grafana", "export", "grafana").out.startswith("0 files written to grafana, ")


def test_several_changed_files_are_one_line(partbox, here):
    partbox("grafana", "export", "grafana")
    for path in (here / "grafana" / "dashboards").iterdir():
        path.write_text("mine")
    error = partbox("grafana", "export", "grafana").error
    assert "and 2 more files differ" in error
