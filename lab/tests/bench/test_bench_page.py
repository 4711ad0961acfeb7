"""The pages of the bench name its lines, and their commands are ones that it takes."""

import re
import shlex
from pathlib import Path

import pytest

from partbox.cli import main
from partbox_lab.bench import GROWTH, LINES
from partbox_lab.peers.__main__ import _options
from partbox_lab.peers.outboxes import PEERS

DOCS = Path(__file__).resolve().parents[3] / "docs"
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = ("bench.md", "performance.md")


def text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def commands(program: str) -> list[list[str]]:
    """The arguments of each call of a program in a block of the pages."""
    lines = [line for page in PAGES for block in BLOCK.findall(text(page)) for line in block.splitlines()]
    calls = [shlex.split(line.removeprefix("$ ").partition(" > ")[0], comments=True) for line in lines]
    return [call[len(program.split()) :] for call in calls if call[: len(program.split())] == program.split()]


def test_the_page_lists_every_measurement_and_no_other():
    first = [row.split("|")[1] for row in text("bench.md").splitlines() if row.startswith("| `")]
    named = [name for cell in first for name in re.findall(r"`([^`]+)`", cell)]
    lines = [each.name for each in (*LINES.budgets, *GROWTH.budgets)]
    whole, beginnings = {name for name in named if "…" not in name}, [n.partition("…")[0] for n in named if "…" in n]
    assert whole <= {*lines}
    assert [name for name in lines if name not in whole and not name.startswith(tuple(beginnings))] == []
    assert all(any(name.startswith(each) for name in lines) for each in beginnings)


def test_the_table_of_growth_names_measurements_that_exist():
    table = text("performance.md").partition("## Growth")[2].partition("\n## ")[0]
    first = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = [name for cell in first for name in re.findall(r"`([a-z][^`]+)`", cell)]
    assert named
    assert {*named} <= GROWTH.names


def test_the_bench_accepts_every_bench_command_on_the_pages(capsys):
    found = commands("partbox bench")
    assert len(found) > 5
    for arguments in found:
        with pytest.raises(SystemExit) as exit:
            main(["bench", *arguments, "--list"])
        assert not exit.value.code, (arguments, capsys.readouterr())


def test_the_peers_program_accepts_every_peers_command_on_the_pages(monkeypatch):
    found = commands("./scripts/bench-peers")
    assert found
    for arguments in found:
        monkeypatch.setattr("sys.argv", ["bench-peers", *arguments])
        assert _options([each.__module__.rpartition(".")[2] for each in PEERS])
