"""The parts of `scripts/bench-peers` that need no peer: its arithmetic, its table, how workers report."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from partbox.errors import PartboxError
from partbox_lab import peers
from partbox_lab.peers.figures import disorder, drain_rate, middle
from partbox_lab.peers.measure import DrainResult, Latency, PublishResult
from partbox_lab.peers.outboxes import PEERS
from partbox_lab.peers.peer import KEYS, SIZE, Sample
from partbox_lab.peers.processes import PeerProcesses
from partbox_lab.peers.report import WIDE, Result, as_json, failures, header_lines, table

SECOND = 10**9
WORKERS = Path(peers.__file__).parent / "workers"
PEERS_COMMAND = (sys.executable, "-m", "partbox_lab.peers")


@pytest.mark.parametrize("number", [0, 7, 1_234, 1_000_999])
def test_every_event_has_the_same_size(number):
    assert len(Sample(number).text) == SIZE
    assert json.loads(Sample(number).text)["number"] == number
    assert Sample(number).key == Sample(number + KEYS).key


def test_a_drain_is_timed_from_when_the_last_process_had_begun():
    counts = {1: [(1 * SECOND, 10), (2 * SECOND, 30), (4 * SECOND, 60)], 2: [(2 * SECOND, 10), (4 * SECOND, 40)]}
    assert drain_rate(counts, events=100, began=0, ended=4 * SECOND) == pytest.approx(30)


def test_a_drain_that_ends_before_the_last_process_begins_is_timed_from_the_start():
    assert drain_rate({1: [(1 * SECOND, 90)]}, events=100, began=0, ended=2 * SECOND) == 50
    with pytest.raises(ValueError, match="nothing was handled"):
        drain_rate({}, events=100, began=0, ended=SECOND)


def test_disorder_counts_the_events_that_a_later_one_of_their_key_overtook():
    keys = {1: "a", 2: "b", 3: "a", 4: "b"}
    assert disorder(keys, {1: 10, 2: 20, 3: 30, 4: 40}) == 0
    assert disorder(keys, {1: 10, 2: 50, 3: 30, 4: 40}) == 25
    assert disorder(keys, {1: 40, 2: 20, 3: 30, 4: 10}) == 50


def test_the_median_leaves_out_rounds_that_were_not_measured():
    assert middle([3.0, None, 1.0]) == 2
    assert middle([None]) is None


def result(**fields: object) -> Result:
    return Result("partbox", "key", "defaults", "partbox 1", **fields)


def test_the_table_shows_medians_and_failures():
    whole = result(
        published=[PublishResult(1_000, 50_000, 500, 440), PublishResult(3_000, 70_000, 500, 440)],
        drained=[DrainResult(1, 100_000, 4.26, 0.012, 8, 2), DrainResult(2, 180_000, 5, 0.01, 8, None)],
        latencies=[Latency(100, 100, [0.5, 0.5, 1.5], 0), Latency(1_000, 700, [2.0], 0), Latency(1, 1, [200.0], 1)],
        disorder=[0.0],
    )
    results = [whole, Result("PgQ", "queue", "", error="apt-get is not installed")]
    console = Console(width=WIDE)
    with console.capture() as printed:
        console.print(table(results))
    lines = printed.get().splitlines()
    first = "partbox key 2,000 60,000 100,000 180,000 200 / 200 + 0.5 / 1.5 2.0 / 2.0 ~ 440 4.3 0.012 8 + 2 0.0 %"
    assert lines[1].split() == first.split()
    assert "".join(lines[2].split()) == "PgQqueue---------- -+--".replace(" ", "")
    assert failures(results)[-1] == "PgQ, order queue: apt-get is not installed"
    assert failures([whole]) == []


def test_the_json_has_every_round_and_no_list_of_latencies():
    written = as_json({"server": "PostgreSQL 15"}, [result(latencies=[Latency(100, 99, [1.0] * 5_000, 2)])])
    (found,) = json.loads(json.dumps(written))["results"]
    (waits,) = found["latencies"]
    assert waits == {"rate": 100, "reached": 99, "missing": 2, "events": 5_000} | dict.fromkeys(
        ("p50", "p90", "p99", "p100"), 1.0
    )
    assert found["medians"]["drain"] is None


def test_the_header_is_one_line_for_each_peer():
    assert header_lines({"load": 1.25, "peers": {"a": "1", "b": "2"}}) == "load: 1.2\npeers: \n  a: 1\n  b: 2"


def test_reports_of_workers_are_read_per_process():
    crew = PeerProcesses([], sys.stderr)
    for line in ("count 7 1000 5", "count 7 2000 9", "count 8 1500 1", "seen 7 900 42", "seen 8 999 42", "nonsense"):
        crew._take(line.split())
    assert (crew.handled, crew.counts[7], crew.seen) == (10, [(1000, 5), (2000, 9)], {42: 900})


def test_a_worker_that_ends_early_is_an_error_with_its_output(tmp_path):
    pipe = subprocess.PIPE
    with (tmp_path / "errors").open("w+") as errors:
        command = [sys.executable, "-c", "raise SystemExit('RuntimeError: no queue of that name')"]
        worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True)
        crew = PeerProcesses([worker], errors)
        with pytest.raises(PartboxError, match=r"^RuntimeError: no queue of that name$"):
            crew.wait_ready()
        crew.stop()
    assert worker.returncode == 1


@pytest.mark.parametrize(("watched", "said"), [(False, "count"), (True, "seen")])
@pytest.mark.parametrize(
    ("called", "given"), [("handler(lambda event: event)", "41"), ("list_handler(lambda event: event)", "[41]")]
)
def test_a_worker_waits_for_the_start_then_reports_and_ends_when_its_input_ends(watched, said, called, given):
    program = (
        "import os; from reporting import handler, list_handler, wait_for_go\n"
        f"handle = {called}\nwait_for_go()\nhandle({given})\nimport time; time.sleep(60)"
    )
    environment = {"PEER_RUN": json.dumps({"watched": watched}), "PYTHONPATH": str(WORKERS)}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdin=pipe, stdout=pipe, text=True) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        run.stdin.write("go\n")
        run.stdin.flush()
        words = run.stdout.readline().split()
        run.stdin.close()
        assert run.wait(10) == 0
    assert (words[0], words[1], words[3]) == (said, str(run.pid), "41" if watched else "1")


def test_each_peer_says_which_order_it_keeps_and_has_a_worker():
    assert len({each.name for each in PEERS}) == len(PEERS)
    for each in PEERS:
        assert each.orders
        assert all(0 < share <= 1 for share in each.orders.values())
        name = each.__module__.rpartition(".")[2]
        assert [*WORKERS.glob(f"work_{name}.*")], name


@pytest.mark.soak
def test_peers_that_need_no_installation_are_measured_and_leave_nothing_behind(dsn, conn, tmp_path):
    written = tmp_path / "peers.json"
    options = [
        "--quick",
        "--events",
        "300",
        "--peers",
        "partbox",
        "partbox_lists",
        "textbook",
        "--dsn",
        dsn,
        "--json",
        str(written),
    ]
    ran = subprocess.run([*PEERS_COMMAND, *options], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    results = json.loads(written.read_text())["results"]
    assert [(each["peer"], each["order"], each["error"]) for each in results] == [
        ("partbox", "key", ""),
        ("partbox", "none", ""),
        ("partbox, lists", "key", ""),
        ("textbook SKIP LOCKED", "none", ""),
    ]
    for each in results:
        measured = {name: value for name, value in each["medians"].items() if name != "cpu_server"}
        assert None not in measured.values(), each
        assert [run["rate"] for run in each["latencies"]] == [1, 100, 1_000]
    assert results[0]["disorder"] == [0.0]
    assert conn.execute("select count(*) from pg_database where datname like 'peers!_%' escape '!'").fetchone() == (0,)


def test_an_unknown_peer_is_an_error_that_names_the_known_ones():
    command = [*PEERS_COMMAND, "--peers", "kafka"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert all(each.__module__.rpartition(".")[2] in ran.stderr for each in PEERS)
