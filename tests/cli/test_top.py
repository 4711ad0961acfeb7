"""`partbox top`, on a real terminal; and what it draws."""

import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from uuid import UUID

import pytest
from planted_records import Planter
from pty_screen import CONTROL, ENTER
from rich.console import Console

from partbox.cli.shell.watching import ClusterSample
from partbox.cli.views.top_view import TopFrame, render_top
from partbox.db.inspect.stats import Cluster, Instance, PartitionStats, RunningHandler
from partbox.db.operator.blocked import BlockedKey
from partbox.operations.stats import Rates
from partbox.terminal.roster import Roster

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
HOSTILE = "<script>[bold red]\x1b[2J\x07\u202egnp.exe\u2066" + "x" * 10_000
INSTANCE = """
insert into partbox.instance (subscription, node, hostname, pid, version, lease)
values ('default', %s, 'host', %s, '0.1.0', '6 h') returning instance_id
"""


def an_instance(number: int, *, node: str = "node-a", heartbeat_age: float = 0.4, owns: int = 128) -> Instance:
    return Instance(
        instance_id=UUID(int=number),
        node=node,
        hostname="host",
        pid=4_000 + number,
        version="0.1.0",
        draining=False,
        age=60.0,
        heartbeat_age=heartbeat_age,
        lease=6.0,
        partitions=owns,
    )


def a_partition(number: int, owner: UUID | None) -> PartitionStats:
    return PartitionStats(
        partition=number,
        assignee=owner,
        owner=owner,
        epoch=1,
        pending=100,
        exact=True,
        oldest_age=200.0,
        claimed_age=1.0,
        saved_age=1.0,
        suspect=False,
    )


def a_key(text: str = "7", error: str = "boom") -> BlockedKey:
    return BlockedKey(
        aggregate_type="Order",
        aggregate_id=text,
        record_id=1,
        event_id=None,
        event_type="Placed",
        state="retrying",
        attempts=3,
        due_at=None,
        error_type="ValueError",
        error=error,
        followers=12,
        blocked_since=NOW - timedelta(minutes=5),
        partition=1,
        owner=None,
        node=None,
        pid=None,
    )


@pytest.fixture
def top_frame() -> TopFrame:
    members = (an_instance(1), an_instance(2, node="node-b"))
    owners = [UUID(int=1)] * 100 + [UUID(int=2)] * 100 + [UUID(int=99)] * 40 + [None] * 16
    roster = Roster()
    roster.add_processes(each.instance_id for each in members)
    cluster = Cluster(
        schema="partbox",
        subscription="default",
        paused=False,
        instances=members,
        partitions=tuple(a_partition(number, owner) for number, owner in enumerate(owners)),
        parked={"dead": 4, "held": 12, "retrying": 1},
        created=NOW,
        paused_at=None,
        completed=9_000,
        blocked_keys=1,
    )
    return TopFrame(ClusterSample(NOW, cluster, Rates(1_234.4, 999.6)), roster, frozenset({0}), [a_key()])


def shown(top_frame: TopFrame, width: int, height: int = 30) -> list[str]:
    console = Console(record=True, width=width, height=height, file=StringIO())
    console.print(render_top(top_frame, width, height))
    return [line.rstrip() for line in console.export_text().splitlines()]


def drawn(top_frame: TopFrame) -> str:
    """The output to a terminal of all colours."""
    out = StringIO()
    console = Console(file=out, width=100, height=30, force_terminal=True, color_system="truecolor")
    console.print(render_top(top_frame, 100, 30))
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 62, 80, 110, 200])
def test_the_view_fits_and_shows_every_partition_by_its_living_owner(top_frame, width):
    lines = shown(top_frame, width, 50)
    assert max(map(len, lines)) <= width
    map_of = "".join("".join(line[: 48 if width >= 110 else 32].split()) for line in lines[2:18])
    assert map_of == "A" * 100 + "B" * 100 + "·" * 56
    text = "\n".join(lines)
    for word in ("4001", "4002", "1,234/s", "1,000/s", "25,600", "3 m ago", "12 held", "blocked the longest"):
        assert word in text


@pytest.mark.parametrize(("width", "height"), [(62, 20), (80, 24), (120, 40)])
def test_the_view_is_no_higher_than_the_terminal(top_frame, width, height):
    many = replace(top_frame.sample.cluster, instances=tuple(an_instance(number) for number in range(1, 40)))
    sample = replace(top_frame.sample, cluster=many)
    crowded = replace(top_frame, sample=sample, blocked_keys=[a_key(str(number)) for number in range(50)])
    lines = shown(crowded, width, height)
    assert len(lines) <= height
    assert "more" in "\n".join(lines)


def test_hostile_names_and_errors_stay_on_their_line_and_move_nothing(top_frame):
    members = (an_instance(1, node=HOSTILE), an_instance(2))
    cluster = replace(top_frame.sample.cluster, instances=members, subscription=HOSTILE)
    hostile = replace(
        top_frame, sample=replace(top_frame.sample, cluster=cluster), blocked_keys=[a_key(HOSTILE, f"a\nb {HOSTILE}")]
    )
    lines = shown(hostile, 120, 40)
    assert len(lines) == len(shown(top_frame, 120, 40))
    assert max(map(len, lines)) <= 120
    for character in "\x1b\x07\u202e\u2066":
        assert character not in "\n".join(lines)
    assert "<script>[bold red]" in lines[-1]


@pytest.mark.parametrize(("width", "height"), [(50, 50), (80, 24), (80, 40), (160, 40)])
def test_long_running_handlers_are_shown_above_blocked_aggregates(top_frame, width, height):
    runs = tuple(
        RunningHandler("ship", "Placed", "Order", HOSTILE[:100], number, 720.0 - number) for number in range(30)
    )
    member = replace(an_instance(1), running=runs, running_more=5)
    cluster = replace(top_frame.sample.cluster, instances=(member,))
    crowded = replace(top_frame, sample=replace(top_frame.sample, cluster=cluster), blocked_keys=[a_key()] * 50)
    lines = shown(crowded, width, height)
    text = "\n".join(lines)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert "ship" in text
    assert "12 m" in text
    assert ("4001 on node-a" in text) == (width >= 80)
    assert "blocked the longest" in text
    assert text.index("running for long") < text.index("blocked the longest")
    for character in "\x1b\x07\u202e\u2066":
        assert character not in text


def test_two_supervisors_of_one_host_have_two_names(top_frame):
    # At 80 columns too: more than one node is what tells them apart.
    members = (replace(an_instance(1), supervisor=UUID(int=7)), replace(an_instance(2), supervisor=UUID(int=8)))
    cluster = replace(top_frame.sample.cluster, instances=members)
    for width in (80, 120):
        text = "\n".join(shown(replace(top_frame, sample=replace(top_frame.sample, cluster=cluster)), width))
        assert "node-a (2)" in text


def test_aggregates_that_wait_for_one_reason_are_one_row(top_frame):
    keys = [replace(a_key(str(number)), state="deferred", error_type=None, error=f"{number}") for number in range(44)]
    text = shown(replace(top_frame, blocked_keys=[*keys, a_key("x" * 50)]), 100, 40)
    rows = text[text.index(next(line for line in text if line.startswith("blocked the longest"))) + 1 :]
    assert [row.split()[:5] for row in rows] == [["Order", "0", "and", "43", "more"], rows[1].split()[:5]]
    assert rows[1].startswith("Order xxxxx")
    assert " 528 " in rows[0]  # 12 behind each


def test_the_view_reports_a_pause_missing_workers_an_expired_lease_and_a_lost_database(top_frame):
    cluster = replace(top_frame.sample.cluster, instances=(), paused=True)
    alone = "\n".join(shown(replace(top_frame, sample=replace(top_frame.sample, cluster=cluster)), 100))
    assert "start some with" in alone
    assert "PAUSED" in alone
    lost = "\n".join(shown(replace(top_frame, sample=replace(top_frame.sample, problem="cannot use it")), 100))
    assert "as of 12:00:00Z: cannot use it" in lost
    late = replace(top_frame.sample.cluster, instances=(an_instance(1, heartbeat_age=7.0),))
    assert "expired" in "\n".join(shown(replace(top_frame, sample=replace(top_frame.sample, cluster=late)), 100))


def test_without_colour_there_are_letters_and_no_colour_codes(top_frame, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    plain = drawn(top_frame)
    monkeypatch.delenv("NO_COLOR")
    assert "48;2;" in drawn(top_frame)
    assert "48;" not in plain
    assert "38;" not in plain
    assert "A A A A" in CONTROL.sub("", plain)


def test_top_in_a_pipe_names_the_command_for_pipes(partbox, dsn):
    assert "`partbox status --watch`" in partbox("top", "--dsn", dsn).error


def test_a_wrong_interval_of_top_is_refused(partbox):
    assert "--every '1ms'" in partbox("top", "--every", "1ms").error


def test_top_shows_a_partition_that_moves_and_q_ends_it(conn, dsn, screen):
    first, second = (conn.execute(INSTANCE, ["node-a", pid]).fetchone()[0] for pid in (4711, 4712))
    conn.execute("update partbox.partition set owner = %s, assignee = %s", [first, first])
    with screen("top", "--every", "100ms", dsn=dsn) as screen:
        screen.until("4711")
        assert screen.said(ENTER)
        screen.until("A  A  A  A")
        conn.execute("update partbox.partition set owner = %s where partition < 16", [second])
        screen.until("B  B  B  B  B  B  B  B  B  B  B  B  B  B  B  B")
        screen.press("x")
        screen.press("q")
        assert screen.ended() == 0
        assert screen.restored
        assert not screen.said("48;")  # NO_COLOR


@pytest.mark.parametrize("end", ["\x03", signal.SIGTERM])
def test_ctrl_c_and_a_signal_end_top_and_leave_the_terminal_as_it_was(dsn, end, screen):
    with screen("top", "--every", "100ms", dsn=dsn) as screen:
        screen.until("no worker process")
        screen.press(end) if isinstance(end, str) else screen.signal(end)
        assert screen.ended() == 0
        assert screen.restored


def test_top_shows_the_aggregate_that_is_blocked_with_its_error(conn, dsn, screen):
    Planter(conn).park(
        f"a{HOSTILE[:60]}", "retrying", blocks=True, attempts=3, error=f"ValueError: card declined {HOSTILE}"
    )
    with screen("top", "--every", "100ms", dsn=dsn, width=160) as screen:
        frame = screen.until("card declined")
        assert "Order a<script>" in frame
        assert "1 retrying" in frame
        assert "\u202e" not in screen.raw
        assert "\x07" not in screen.raw
        screen.press("q")
        assert screen.ended() == 0


def test_top_follows_the_size_of_the_terminal(dsn, screen):
    with screen("top", "--every", "100ms", dsn=dsn, width=160) as screen:
        screen.until("·  ·  ·")
        screen.resize(50, 30)
        screen.until("· · ·")
        screen.press("q")
        assert screen.ended() == 0


def test_top_goes_on_when_the_database_was_away(dsn, away, screen):
    with screen("top", "--every", "100ms", dsn=dsn) as screen:
        screen.until("no worker process")
        with away():
            screen.until("as of ")
            screen.until("no worker process")  # what is drawn is as it was
        screen.until("q quits")
        screen.press("q")
        assert screen.ended() == 0
        assert screen.restored


def test_an_error_at_the_start_of_top_is_one_line_and_nothing_is_drawn(empty_dsn, screen):
    with screen("top", dsn=empty_dsn) as screen:
        assert screen.ended() == 1
        assert "run `partbox init`" in screen.raw
        assert not screen.said(ENTER)
        assert screen.restored
