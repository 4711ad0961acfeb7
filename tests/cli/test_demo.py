"""`partbox demo`, run as people run it; how it ends; how it looks."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from io import StringIO
from pathlib import Path
from uuid import UUID

import psutil
import psycopg
import pytest
from forked_commands import Command
from rich.console import Console
from waiting import eventually

from partbox.db.inspect.stats import Cluster, Instance, PartitionStats
from partbox.demo.audit import Throughput
from partbox.demo.summary import Summary
from partbox.demo.view import Frame, Screen, render_demo
from partbox.demo.view import format_line as line_of
from partbox.operations.stats import NewsItem
from partbox.terminal.roster import Roster

PATIENCE = 120.0
NOON = datetime(2026, 1, 31, 12, 0, 1).astimezone()


@pytest.fixture
def make_open_folder(folder) -> Path:
    """A folder that root's server can pass through; the demo's files go there."""
    folder.mkdir()
    folder.chmod(0o755)
    return folder


@pytest.fixture
def demo(make_open_folder, forks):
    """Starts a demo in a session of its own, as in a terminal of its own; afterwards nothing of it may be left."""
    started = []

    def start(*arguments: str) -> Command:
        variables = os.environ | {"TMPDIR": str(make_open_folder)}
        started.append(forks.start("partbox", "demo", "--json", *arguments, env=variables))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:  # the test has failed: now at once
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGINT)
        process.communicate()
        eventually(lambda session=process.pid: not list(left(session, make_open_folder)))
    assert list(make_open_folder.iterdir()) == []


def left(session: int, folder: Path) -> Iterator[psutil.Process]:
    """The processes of the session, or with the folder in their command: PostgreSQL has sessions of its own."""
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session or str(folder) in " ".join(process.cmdline()):
                yield process
        except (psutil.Error, ProcessLookupError):
            continue


def read_until(process: Command, word: str) -> None:
    """Read what it says up to the line with that word."""
    said = []
    for line in process.stderr:
        said.append(line)
        if word in line:
            return
    raise AssertionError(f"it never said {word!r} but: {''.join(said)}")


def ended(process: Command) -> dict:
    """The summary that it ends with."""
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    summary = json.loads(out)
    assert summary["ok"], err
    assert summary["published"] == summary["delivered"]
    assert (summary["lost"], summary["out_of_order"], summary["made_up"], summary["unexplained"]) == (0, 0, 0, 0)
    return summary


def test_published_events_are_delivered_in_order_while_worker_processes_are_killed(demo):
    process = demo("--processes", "2", "--rate", "60")
    read_until(process, "killed process")
    read_until(process, "rebalanced in")
    os.killpg(process.pid, signal.SIGINT)
    summary = ended(process)
    assert summary["published"] > 0
    assert summary["kills"] >= 1
    assert summary["moves"] >= 128
    assert 0 < summary["lag_p50_ms"] <= summary["lag_p99_ms"]


@pytest.mark.parametrize("word", ["setting up", pytest.param("starting", marks=pytest.mark.thorough), "  delivered "])
def test_one_ctrl_c_ends_everything_in_order(demo, word):
    process = demo("--processes", "1", "--rate", "60")
    read_until(process, word)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to every process
    assert (ended(process)["published"] > 0) == ("delivered" in word)


def test_a_second_ctrl_c_ends_everything_at_once(demo):
    process = demo("--processes", "1", "--rate", "60")
    read_until(process, "  delivered ")
    os.killpg(process.pid, signal.SIGINT)
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert json.loads(out)["cut_short"]


def test_the_demo_leaves_nothing_behind_in_the_database_of_the_user(demo, empty_dsn):
    ended(demo("--dsn", empty_dsn, "--seconds", "1", "--processes", "1", "--rate", "60", "--no-chaos"))
    with psycopg.connect(empty_dsn) as conn:
        assert conn.execute("select from pg_namespace where nspname = 'partbox_demo'").fetchone() is None


def test_the_demo_refuses_a_database_that_already_has_its_schema(partbox, empty_dsn):
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute("create schema partbox_demo")
        ran = partbox("demo", "--dsn", empty_dsn)
        assert ran.code == 1
        assert "drop schema partbox_demo cascade" in ran.err
        assert conn.execute("select from pg_namespace where nspname = 'partbox_demo'").fetchone() is not None


def a_process(pid: int, owned: int) -> Instance:
    return Instance(
        instance_id=UUID(int=pid),
        node="a-node-of-a-long-name",
        hostname="host",
        pid=pid,
        version="0.1.0",
        draining=False,
        age=12.0,
        heartbeat_age=0.4,
        lease=6.0,
        partitions=owned,
    )


def a_partition(number: int, pid: int | None) -> PartitionStats:
    owner = None if pid is None else UUID(int=pid)
    return PartitionStats(
        partition=number,
        assignee=owner,
        owner=owner,
        epoch=1,
        pending=0,
        exact=True,
        oldest_age=None,
        claimed_age=1.0,
        saved_age=1.0,
        suspect=False,
    )


def a_cluster(processes: tuple[Instance, ...], owners: tuple[int | None, ...]) -> Cluster:
    return Cluster(
        schema="partbox_demo",
        subscription="default",
        paused=False,
        instances=processes,
        partitions=tuple(a_partition(number, pid) for number, pid in enumerate(owners)),
        parked={},
        created=NOON,
        paused_at=None,
        completed=0,
        blocked_keys=0,
    )


@pytest.fixture
def frame() -> Frame:
    roster = Roster()
    roster.add_processes([UUID(int=pid) for pid in (4711, 1234567, 42)])
    return Frame(
        elapsed=12.4,
        seconds=30,
        cluster=a_cluster(
            (a_process(4711, 100), a_process(1234567, 100), a_process(42, 40)),
            (4711,) * 100 + (1234567,) * 100 + (42,) * 40 + (None,) * 16,
        ),
        roster=roster,
        moved_partitions=frozenset({0, 1}),
        events=Throughput(
            published=1234567,
            published_rate=12345.6,
            delivered=1234560,
            delivered_rate=12340.0,
            rates={4711: 250.2},
            lags=(0.0032, 1.5),
        ),
        duplicates=3,
        out_of_order=0,
        happenings=[
            NewsItem(NOON, "said", "killed process B (pid 1234567): its 100 partitions move to other processes")
        ],
    )


def shown(frame: Frame, width: int, height: int = 24, **options) -> list[str]:
    console = Console(record=True, width=width, height=height, file=StringIO(), **options)
    console.print(render_demo(frame, width, height))
    return [line.rstrip() for line in console.export_text(styles=options.get("force_terminal", False)).splitlines()]


@pytest.mark.parametrize("width", [40, 60, 100, 160])
def test_the_view_fits_and_shows_every_partition_by_its_owner(frame, width):
    lines = shown(frame, width)
    assert max(map(len, lines)) <= width
    grid = "".join("".join(line[: 48 if width == 160 else 32].split()) for line in lines[2:18])
    assert grid == "A" * 100 + "B" * 100 + "C" * 40 + "·" * 16
    text = "\n".join(lines)
    for word in ("1234567", "100", "1,234,567", "1,234,560", "3.2 ms", "1.5 s", "killed process B"):
        assert word in text


def test_the_view_at_60_columns_fits_a_terminal_of_24_lines(frame):
    assert len(shown(frame, 60)) <= 24


ADDRESS = "http://127.0.0.1:43210/#token=" + "x" * 43


@pytest.mark.parametrize(("width", "height"), [(60, 24), (100, 24), (160, 50), (60, 21)])
def test_the_page_address_is_always_shown_in_full_at_the_bottom_of_the_view(frame, width, height):
    many = [NewsItem(NOON, "said", f"news {number}") for number in range(40)]
    lines = shown(replace(frame, page=ADDRESS, happenings=many), width, height)
    assert len(lines) <= height
    rows = -(-len(ADDRESS) // width)
    assert "".join(lines[-rows:]).removeprefix("page ") == ADDRESS
    assert ("news 39" in lines[-rows - 1]) == (height > 21)


def test_the_page_address_moves_to_the_top_when_the_last_line_is_off_the_screen(frame):
    lines = shown(replace(frame, page=ADDRESS), 40, 24)
    assert "".join(lines[1:3]) == ADDRESS


def test_a_pipe_gets_the_address_at_the_end_of_each_line(frame):
    assert line_of(replace(frame, page=ADDRESS)).endswith(f"  page {ADDRESS}")


def test_a_wide_view_tells_nodes_and_heartbeats(frame):
    text = "\n".join(shown(frame, 100))
    assert "a-node-of-a-l" in text
    assert "0.4 s ago" in text


def test_the_view_before_the_first_process_says_that_it_starts(frame):
    nothing = a_cluster((), (None,) * 256)
    text = "\n".join(shown(replace(frame, elapsed=None, cluster=nothing, events=frame.events._replace(lags=None)), 60))
    assert "starting" in text


def test_processes_that_do_not_fit_the_view_are_counted(frame):
    many = replace(frame.cluster, instances=tuple(a_process(pid, 8) for pid in range(1, 33)))
    lines = shown(replace(frame, cluster=many), 100)
    assert len(lines) <= 24
    assert " more" in "\n".join(lines)


def test_a_process_keeps_its_badge_letter_and_its_replacement_gets_a_new_one():
    roster = Roster()
    roster.add_processes([1, 2])
    before = roster.find_badge(2)
    roster.add_processes([2, 3])
    assert (roster.find_badge(2), roster.find_badge(3).letter) == (before, "C")
    assert roster.find_badge(3).colour != before.colour


def test_a_pipe_gets_lines_and_no_drawing(frame):
    out = StringIO()
    lines = Screen(out)
    with lines.live():
        lines.show_frame(frame)
        lines.show_frame(frame)
        lines.print_happening(frame.happenings[0])
    first, second = out.getvalue().splitlines()
    assert "published 1,234,567 (12,346/s)  delivered 1,234,560" in first
    assert "pending 7" in first
    assert "partitions A 100 B 100 C 40" in first
    assert second == "12:00:01  killed process B (pid 1234567): its 100 partitions move to other processes"


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        ({}, 0),
        ({"duplicates": 4}, 0),
        ({"lost": 1}, 1),
        ({"out_of_order": 1}, 1),
        ({"made_up": 1}, 1),
        ({"cut_short": True, "lost": 3}, 130),
        ({"cut_short": True, "out_of_order": 1}, 1),
    ],
)
def test_the_exit_code_says_whether_a_promise_was_broken(broken, code):
    whole = Summary(
        published=9,
        delivered=9,
        duplicates=0,
        unexplained=0,
        out_of_order=0,
        lost=0,
        rolled_back=1,
        made_up=0,
        kills=1,
        joins=1,
        leaves=0,
        moves=64,
        seconds=8.0,
        lag_p50_ms=1.0,
        lag_p99_ms=2.0,
        cut_short=False,
    )
    summary = replace(whole, **broken)
    assert summary.exit_code == code
    assert (str(summary.render_verdict()) == "published = delivered, 0 out of order") == (code == 0)
