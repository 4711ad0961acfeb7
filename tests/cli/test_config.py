"""`partbox config`, help and usage, and the page of the settings."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from partbox.cli.settings_page import page
from partbox.settings import names

ROOT = Path(__file__).parents[2]


def test_config_shows_every_value_with_its_origin(partbox, here, monkeypatch):
    (here / "partbox.toml").write_text('lease = "9s"\n')
    monkeypatch.setenv("PARTBOX_CONCURRENCY", "8")
    lines = {line.split()[0]: line.split()[1:] for line in partbox("config", "--schema", "orders").out.splitlines()}
    assert lines["lease"] == ["9s", "partbox.toml"]
    assert lines["concurrency"] == ["8", "PARTBOX_CONCURRENCY"]
    assert lines["schema"] == ["orders", "--schema"]
    assert lines["page"] == ["10000", "default"]
    assert set(lines) == {"setting", *names()}


def test_config_as_json_masks_the_password(partbox, monkeypatch):
    monkeypatch.setenv("PARTBOX_DSN", "postgresql://shop:s3cret@db/shop")
    shown = partbox("config", "--json")
    assert "s3cret" not in shown.out + shown.err + partbox("config").out
    assert json.loads(shown.out)["dsn"] == {"value": "postgresql://shop:***@db/shop", "origin": "PARTBOX_DSN"}


def test_a_wrong_setting_is_one_line(partbox, monkeypatch):
    monkeypatch.setenv("PARTBOX_LEASE", "soon")
    assert "setting lease = soon (from PARTBOX_LEASE) is invalid: give seconds" in partbox("config").error


def test_the_documentation_lists_the_settings_as_they_are(partbox):
    committed = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert partbox("config", "--markdown").out == page() == committed, "partbox config --markdown > docs/settings.md"
    assert all(f"| `{name}` |" in committed for name in names())


@pytest.mark.parametrize("command", ["init", "migrate", "worker", "status", "handlers", "config"])
def test_help_teaches_with_an_example(partbox, command):
    shown = partbox(command, "--help")
    assert shown.code == 0
    assert "Example: " in shown.out
    assert f"partbox {command}" in shown.out


def test_wrong_usage_ends_with_two(partbox):
    for arguments in (["bogus"], ["status", "--bogus"], ["worker"], ["worker", "shop:outbox", "--processes", "0"]):
        assert partbox(*arguments).code == 2


def test_the_installed_command_prints_no_colour_and_no_traceback(here):
    command = [sys.executable, "-c", "from partbox.cli import main; main()"]
    done = subprocess.run([*command, "handlers", "nowhere:outbox"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("partbox: there is no module 'nowhere'")
    assert "\x1b" not in done.stderr
