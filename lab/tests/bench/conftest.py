"""Runs of the bench, of which nothing may be left."""

import os
import signal
from collections.abc import Callable, Iterator

import psycopg
import pytest
from forked_commands import Command, forks

__all__ = ["forks"]


@pytest.fixture
def make_open_folder(folder):
    """A folder that root's server can pass through; everything a run makes goes there."""
    folder.mkdir()
    folder.chmod(0o755)
    return folder


@pytest.fixture
def started(make_open_folder, forks) -> Iterator[Callable[..., Command]]:
    """Starts a command, without settings of the machine's; afterwards no file of it may be left."""
    commands = []

    def start(*command: str, **environment: str) -> Command:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
        variables = kept | {"TMPDIR": str(make_open_folder)} | environment
        commands.append(forks.start(*command, env=variables, cwd=make_open_folder))
        return commands[-1]

    yield start
    for command in commands:
        if command.poll() is None:  # the test has failed: now at once
            command.send_signal(signal.SIGTERM)
            command.send_signal(signal.SIGINT)
        command.communicate()
    assert list(make_open_folder.iterdir()) == []


@pytest.fixture
def schemas(empty_dsn) -> Callable[[], list[str]]:
    """The schemas of partbox in the test's database."""

    def schemas() -> list[str]:
        with psycopg.connect(empty_dsn) as conn:
            return [name for (name,) in conn.execute("select nspname from pg_namespace where nspname like 'partbox%'")]

    return schemas
