"""`partbox config`, help and usage, and the page of the settings."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from partbox.cli.commands.config import render_page
from partbox.settings import names

ROOT = Path(__file__).parents[2]


SHOP = """
from partbox import Outbox

outbox = Outbox(lease="9s", window=7)
asked = Outbox(lambda: "host=nowhere")
"""


@pytest.fixture
def shop(here):
    """A module of the name `shop`; in another test it is another module."""
    (here / "shop.py").write_text(SHOP)
    path = list(sys.path)
    yield
    sys.path[:] = path
    sys.modules.pop("shop", None)


def shown(out: str) -> dict[str, list[str]]:
    """The columns of every setting, of a table that is wide enough."""
    header, *lines = out.splitlines()
    starts = [header.index(column) for column in ("setting", "value", "from", "meaning")]
    ends = [*starts[1:], None]
    cells = [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in lines]
    return {name: rest for name, *rest in cells if name}


def test_config_shows_every_value_its_origin_and_its_meaning(partbox, here, monkeypatch):
    (here / "partbox.toml").write_text('lease = "9s"\nconcurrency = 2\n')
    monkeypatch.setenv("PARTBOX_CONCURRENCY", "8")
    monkeypatch.setenv("COLUMNS", "240")
    settings = shown(partbox("config", "--schema", "orders", "--pooler").out)
    assert settings["lease"] == ["9s", "partbox.toml", "how long a silent process keeps its partitions"]
    assert settings["concurrency"][:2] == ["8", "PARTBOX_CONCURRENCY, over partbox.toml"]
    assert settings["schema"][:2] == ["orders", "--schema"]
    assert settings["pooler"][:2] == ["true", "--pooler"]
    assert settings["page"][:2] == ["10000", "default"]
    assert settings["bell"][:2] == ["auto, but off behind a pooler without listen_dsn", "default"]
    assert list(settings) == [*names()]
    assert all(meaning for *_, meaning in settings.values())


def test_config_of_an_outbox_says_what_beats_its_keywords(partbox, shop, monkeypatch):
    monkeypatch.setenv("PARTBOX_LEASE", "8s")
    monkeypatch.setenv("COLUMNS", "240")
    settings = shown(partbox("config", "shop:outbox", "--lease", "10s").out)
    assert settings["lease"][:2] == ["10s", "--lease, over the keyword in shop:outbox and PARTBOX_LEASE"]
    assert settings["window"][:2] == ["7", "the keyword in shop:outbox"]
    asked = shown(partbox("config", "shop:asked").out)["dsn"]
    assert asked[:2] == ["what a function gives", "the keyword in shop:asked"]
    assert shown(partbox("config", "shop:asked", "--dsn", "host=db").out)["dsn"][:2] == ["host=db", "--dsn"]


def test_config_is_readable_on_a_hundred_columns(partbox, monkeypatch):
    monkeypatch.setenv("PARTBOX_LEASE", "8s")
    lines = partbox("config", "--lease", "9s", "--dsn", "postgresql://shop:s3cret@db.example.org/shop").out.splitlines()
    assert max(map(len, lines)) <= 100
    assert {line.split()[0] for line in lines if line[:1].strip()} == {"setting", *names()}
    assert len(lines) < 3 * len(names())


def test_config_as_json_masks_the_password(partbox, monkeypatch):
    monkeypatch.setenv("PARTBOX_DSN", "postgresql://shop:s3cret@db/shop")
    shown = partbox("config", "--json")
    assert "s3cret" not in shown.out + shown.err + partbox("config").out
    dsn = json.loads(shown.out)["dsn"]
    assert dsn.pop("meaning").startswith("the database: ")
    assert dsn == {"value": "postgresql://shop:***@db/shop", "origin": "PARTBOX_DSN", "overruled": []}


def test_a_wrong_setting_is_one_line(partbox, monkeypatch):
    monkeypatch.setenv("PARTBOX_LEASE", "soon")
    assert "setting lease = soon (from PARTBOX_LEASE) is invalid: give seconds" in partbox("config").error


def test_the_documentation_lists_the_settings_as_they_are(partbox):
    committed = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert partbox("config", "--markdown").out == render_page() == committed, (
        "partbox config --markdown > docs/settings.md"
    )
    assert all(f"| `{name}` |" in committed for name in names())


@pytest.mark.parametrize("command", ["init", "migrate", "worker", "status", "handlers", "config"])
def test_help_teaches_with_an_example(partbox, command):
    shown = partbox(command, "--help")
    assert shown.code == 0
    assert "Example: " in shown.out
    assert f"partbox {command}" in shown.out


def test_wrong_usage_exits_with_code_2(partbox):
    for arguments in (["bogus"], ["status", "--bogus"], ["worker"], ["worker", "shop:outbox", "--processes", "0"]):
        assert partbox(*arguments).code == 2


def test_the_installed_command_prints_no_colour_and_no_traceback(here):
    command = [sys.executable, "-c", "from partbox.cli import main; main()"]
    done = subprocess.run([*command, "handlers", "nowhere:outbox"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("partbox: there is no module 'nowhere'")
    assert "\x1b" not in done.stderr
