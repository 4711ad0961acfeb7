"""Signals of a terminal reach every process of a node, and only the supervisor decides what they mean."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from linux import reads_proc
from node import Node
from waiting import eventually

SLOW = "slow_app:outbox"


def ignores(pid: int, number: signal.Signals) -> bool:
    (line,) = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("SigIgn:")]
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)


def test_a_closed_terminal_lets_running_handlers_finish(cluster):
    node = cluster.node("node", processes=2)
    cluster.balanced(2)
    gate = cluster.gate()
    events = cluster.ledger.publish_now(cluster.ledger.names[:2], gate=str(gate))
    cluster.running(events)
    for _ in range(2):  # the kernel's, and the shell's
        node.send_to_all(signal.SIGHUP)
        eventually(lambda: cluster.owners.draining("node"), interval=0.02)
    gate.touch()
    assert node.wait() == 0
    assert set(events) <= cluster.journal.ended()
    assert cluster.owners.instances() == {}


@pytest.mark.thorough
@reads_proc
def test_under_nohup_a_closed_terminal_changes_nothing(cluster):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        node = cluster.node("node", fresh=True)
    finally:
        signal.signal(signal.SIGHUP, before)
    cluster.balanced(1)
    assert all(ignores(pid, signal.SIGHUP) for pid in (node.pid, *cluster.owners.instances().values()))
    node.send_to_all(signal.SIGHUP)
    cluster.ledger.publish_now(cluster.ledger.names[:4])
    cluster.delivered()
    assert node.stop() == 0


def test_ctrl_c_while_processes_start_ends_them_at_once(cluster):
    node = Node("node", cluster.folder, cluster.journal.folder, ["--processes", "2"], {"dsn": cluster.dsn}, SLOW)
    cluster.nodes.append(node)
    eventually(lambda: len([*cluster.folder.rglob("loading-*")]) == 2, interval=0.02)
    node.send_to_all(signal.SIGINT)
    assert node.wait() == 0  # it would take 17 s and more if they were waited for
    assert "Traceback" not in node.log
    assert "killed" not in node.log


BORN = """
import os, signal, subprocess, sys
from partbox.supervisor.signals import hold_signals
from multiprocess import resource_tracker

def bits(pid, line):
    with open(f"/proc/{pid}/status") as file:
        (found,) = [each for each in file if each.startswith(line)]
    return int(found.split()[1], 16)

wanted = 1 << signal.SIGINT - 1 | 1 << signal.SIGHUP - 1
before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
with hold_signals():  # starts the tracker
    child = subprocess.Popen(["sleep", "60"], restore_signals=False)
    print(bits(child.pid, "SigBlk:") & wanted == wanted)
child.kill()
child.wait()
tracker = resource_tracker._resource_tracker._pid
print(bool((bits(tracker, "SigBlk:") | bits(tracker, "SigIgn:")) & 1 << signal.SIGHUP - 1))
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before)
"""


@reads_proc
def test_the_first_spawned_process_is_protected_from_signals_from_its_start_too():
    done = subprocess.run([sys.executable, "-c", BORN], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["True"] * 3
