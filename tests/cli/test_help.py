"""`partbox --help` and `partbox --version`, and what is said before any command."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version

from partbox.cli import program
from partbox.observe.logs import setup

ROOT = Path(__file__).parents[2]

PANELS = {
    "Start here": ["demo", "init"],
    "Run": ["worker", "relay", "cdc"],
    "Look": ["status", "find", "top", "dashboard", "config", "segments", "actions", "grafana"],
    "Mend": ["doctor", "cancel", "dead", "blocked"],
    "Operate": ["migrate", "import", "purge", "rebase", "limit", "subscription"],
    "Develop": ["handlers", "metrics", "bench", "chaos", "events"],
}


def test_help_groups_the_commands_by_what_people_do_with_a_line_for_each(partbox):
    panels: dict[str, list[str]] = {}
    for line in partbox("--help").out.splitlines():
        if title := re.match(r"╭─ (.+?) ─", line):
            panels[title[1]] = []
        elif command := re.match(r"│ (\S+)\s+(\S.*?)\s+│", line):
            panels[[*panels][-1]].append(command[1])
            assert len(command[2]) > 20
    assert panels.pop("Options") == ["--version", "--markdown", "--help"]
    assert panels == PANELS


def test_a_command_that_uses_settings_says_that_each_is_an_option_and_hides_most(partbox):
    for typed in (["worker"], ["dead", "replay"], ["doctor"]):
        out = partbox(*typed, "--help").out
        assert "Every setting is an option too, such as --lease 10s or --pooler: partbox config lists them." in out
        assert "--dsn" in out
        assert "--max-parked" not in out
    assert "Every setting" not in partbox("demo", "--help").out


def test_version_prints_the_versions_that_a_bug_report_needs(partbox):
    ran = partbox("--version")
    assert (ran.code, ran.err, ran.out.count("\n")) == (0, "", 1)
    ours = rf"partbox {re.escape(version('partbox'))}, Python 3\.\d+\.\d+, "
    assert re.fullmatch(ours + r"psycopg [\d.]+ \(\w+\), libpq \d+\.\d+\n", ran.out)


def test_the_documentation_lists_the_commands_as_they_are(partbox, monkeypatch):
    committed = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    monkeypatch.setenv("COLUMNS", "60")  # is no width of the page
    ran = partbox("--markdown")
    assert (ran.code, ran.err) == (0, "")
    if Version(version("typer")) >= Version("0.29"):  # older ones write usage and < otherwise
        assert ran.out == committed, "partbox --markdown > docs/cli.md"
    for command in [name for names in PANELS.values() for name in names]:
        assert f"\n## `partbox {command}`\n" in committed
    assert "\n### `partbox dead replay`\n" in committed


@pytest.mark.parametrize("typed", [["bench"], ["bench", "--only", "memory", "x"], ["chaos", "--help"]])
def test_a_lab_command_without_the_lab_extra_says_what_to_install(partbox, monkeypatch, typed):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    monkeypatch.setattr(program, "build_command", program.build_command.__wrapped__)
    ran = partbox(*typed)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"partbox: {typed[0]} comes with the extra lab: `pip install 'partbox[lab]'` brings it\n"


def test_a_command_group_without_arguments_prints_its_help(partbox):
    for group in ([], ["dead"]):
        ran = partbox(*group)
        assert ran.code == 2
        assert (ran.out + ran.err).count("Usage: partbox") == 1


@pytest.mark.parametrize("command", ["config", "metrics"])
def test_unknown_partbox_environment_variables_are_reported_in_one_line_before_a_command(partbox, monkeypatch, command):
    monkeypatch.setattr(setup, "_warned_strays", set())
    monkeypatch.setenv("PARTBOX_SERVICE_HOST", "10.0.0.7")
    monkeypatch.setenv("PARTBOX_DNS", "postgresql://shop:s3cret@db/shop")
    ran = partbox(command, "--json")
    assert ran.code == 0
    assert ran.err == (
        "partbox: ignored environment variables that are not settings: PARTBOX_DNS (did you mean PARTBOX_DSN?), "
        "PARTBOX_SERVICE_HOST; Kubernetes adds such variables for services, unless the pod says "
        "`enableServiceLinks: false`\n"
    )
