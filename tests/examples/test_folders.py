"""What all examples have."""

import subprocess
import sys
from pathlib import Path

import pytest
from readme_commands import EXAMPLES

FOLDERS = sorted(path.parent for path in EXAMPLES.glob("*/README.md"))


def test_compose_files_are_valid():
    files = sorted(EXAMPLES.glob("*/compose.yaml"))
    assert len(files) == len(FOLDERS)
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_example_is_listed_and_has_a_test(folder: Path):
    assert f"| [{folder.name}]({folder.name}/) |" in (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert Path(__file__).with_name(f"test_{folder.name}.py").exists()


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/compose.yaml")), ids=lambda file: file.parent.name)
def test_servers_of_an_example_listen_on_this_machine_only(file: Path):
    import yaml

    services = yaml.safe_load(file.read_text(encoding="utf-8"))["services"]
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
