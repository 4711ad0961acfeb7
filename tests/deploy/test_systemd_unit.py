"""The unit of systemd: its own tool takes it, and its times fit the settings."""

import shutil
import subprocess
from pathlib import Path

from kit import DEPLOY, ROOT, needs

from partbox.duration import seconds
from partbox.settings import Settings, load

UNIT = DEPLOY / "systemd" / "partbox-worker@.service"
RELAY = """[Service]
ExecStart=
ExecStart=/srv/%i/venv/bin/partbox relay
"""


def values() -> dict[str, str]:
    lines = [line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line and line[0] not in "#["]
    return dict(lines)


def analyzed(folder: Path, *more: str) -> str:
    """What systemd-analyze has to say of the unit, and of such files beside it, with programs that exist."""
    shutil.copy(UNIT, unit := folder / "partbox-worker@shop.service")
    for number, text in enumerate(more):
        (drop_in := folder / f"{unit.name}.d").mkdir(exist_ok=True)
        (drop_in / f"{number}.conf").write_text(text)
    for file in folder.rglob("*.*"):
        if file.is_file():
            file.write_text(file.read_text().replace("/srv/%i/venv/bin/partbox", "/bin/true"))
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@needs("systemd-analyze", "apt-get install systemd")
def test_systemd_finds_no_fault_in_the_unit_and_its_variant_for_a_relay(tmp_path):
    assert analyzed(tmp_path) == ""
    assert analyzed(tmp_path, RELAY) == ""
    assert "Unknown key" in analyzed(tmp_path, "[Service]\nWatchdogSecs=1\n"), "it does look"
    assert RELAY in (ROOT / "docs" / "deploying.md").read_text()


def test_a_stop_gives_handlers_the_time_that_the_settings_promise():
    assert seconds(values()["TimeoutStopSec"]) >= Settings().drain_timeout + 5


def test_the_watchdog_of_the_unit_fits_the_signs_of_life_of_the_supervisor():
    said = values()
    assert (said["Type"], said["NotifyAccess"], said["KillMode"]) == ("notify", "main", "mixed")
    assert seconds(said["WatchdogSec"]) >= 2 * Settings().lease


def test_every_variable_of_the_example_environment_file_is_a_setting(monkeypatch):
    lines = (DEPLOY / "systemd" / "shop.env").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert given.pop("OUTBOX") == "shop:outbox"
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    loaded = load()
    assert {origin for origin in loaded.origins.values() if origin.startswith("PARTBOX_")} == {*given}
