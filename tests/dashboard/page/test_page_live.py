"""The page while real nodes work, die and join; the other files have it of planted ones, and of threads."""

import os
import signal

import pytest
from ledger import Ledger, publishing
from node import Node
from owners import Owners
from waiting import eventually

from partbox_lab.chaos.journal import Journal

pytestmark = pytest.mark.soak

FAST = {"lease": 2, "heartbeat": 0.3, "drain_timeout": 20}
PATIENCE = 120


@pytest.fixture
def node(dsn, tmp_path):
    """Starts nodes; they are ended with the test."""
    nodes, journal = [], Journal(tmp_path / "journal")

    def start(name: str, processes: int) -> Node:
        nodes.append(Node(name, tmp_path, journal.folder, ["--processes", str(processes)], FAST | {"dsn": dsn}))
        return nodes[-1]

    yield start
    for each in nodes:
        each.end()


def test_a_kill_and_a_join_are_seen_while_they_happen(live, dsn, conn, node, tab):
    node("north", 2)
    owners = Owners(conn)
    eventually(lambda: owners.even(2), PATIENCE)
    seen = tab(live.with_token)
    seen.waits_for("#workers tbody tr:nth-child(2)")
    eventually(lambda: sorted(seen.letters()) == ["A"] * 128 + ["B"] * 128, PATIENCE)
    with publishing(Ledger(dsn), 1):
        for line in ("published", "delivered"):
            eventually(
                lambda shown=f".value[data-line={line}]": float(seen.text(shown).strip("\u2013") or 0) > 0, PATIENCE
            )

        node("south", 1)
        seen.waits_for("#lately li[data-kind=joined]", "process C")
        seen.waits_for(".cell[data-moved]")
        eventually(lambda: owners.even(3), PATIENCE)
        eventually(lambda: {seen.letters().count(letter) for letter in "ABC"} == {85, 86}, PATIENCE)
        seen.waits_for("#workers tbody tr", "south")

        victim = seen.page.locator("#workers tbody tr", has_text="north").first
        pid, letter = int(victim.locator("td").nth(2).inner_text()), victim.locator(".badge").inner_text()
        os.kill(pid, signal.SIGKILL)
        seen.waits_for("#lately li[data-kind=gone]", f"process {letter} (pid {pid} on north) is gone")
        seen.waits_for("#lately li[data-kind=joined]", "process D")
        eventually(lambda: letter not in seen.letters() and "·" not in seen.letters(), PATIENCE)


def test_a_replay_on_the_page_is_delivered_by_the_cluster(live, dsn, conn, node, tab, tmp_path):
    ledger, cure = Ledger(dsn), tmp_path / "cure"
    node("north", 1)
    (event,) = ledger.publish_now(ledger.names[:1], event_type="Mortal", cure=str(cure))
    seen = tab(live.with_token)
    seen.waits_for("#dead tbody tr", "there is no cure")
    cure.touch()
    seen.button("Replay", "#dead tbody tr").click()
    journal = next(each for each in tmp_path.glob("journal"))
    eventually(lambda: any(event in each.read_text() for each in journal.glob("*.journal")), PATIENCE)
    seen.waits_for("#dead", "No record is dead")
    assert conn.execute("select count(*) from partbox.parked").fetchone() == (0,)
