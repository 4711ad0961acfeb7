"""Measure partbox and other outboxes and queues on one PostgreSQL, with the same events, in alternating runs.

Peers are installed at pinned versions into a temporary folder. The server is started for the run unless --dsn names
one. A peer that cannot be installed, or that fails, is shown with its error. docs/performance.md describes the setup of
each."""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from partbox_lab.bench.cpu import StolenTime
from partbox_lab.bench.machine import Machine
from partbox_lab.bench.workspace import SCHEMA, bench_workspace
from partbox_lab.peers.install import Folder
from partbox_lab.peers.outboxes import PEERS
from partbox_lab.peers.peer import KEYS, SIZE
from partbox_lab.peers.report import NOTE, WIDE, Result, as_json, failures, header_lines, table
from partbox_lab.peers.rounds import QUICK_SECONDS, SECONDS, Effort, measure
from partbox_lab.peers.server import PeerServer, installed_binaries

# The PostgreSQL version of Debian 12, which PgQ is packaged for.
MAJOR = 15
QUICK_EVENTS = 2_000
CONNECTIONS = 200
# No checkpoint falls into a run. Otherwise the page images after one would depend on luck.
SETTINGS = {"max_wal_size": "16GB", "checkpoint_timeout": "1h"}


def main() -> None:
    names = {each.__module__.rpartition(".")[2]: each for each in PEERS}
    given = _options(list(names))
    effort = Effort(given.events, given.rounds, SECONDS)
    if given.quick:
        effort = Effort(min(given.events, QUICK_EVENTS), 1, QUICK_SECONDS)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    # A server that root starts runs as another user, who reads libraries in the folder.
    os.umask(0o022)
    machine, stolen = Machine.now(), StolenTime()
    results: list[Result] = []
    with bench_workspace(given.dsn, CONNECTIONS, binaries=installed_binaries(MAJOR), **SETTINGS) as place:
        server = PeerServer(place)
        installed = given.installed or place.folder / "peers"
        installed.mkdir(exist_ok=True)
        folder = Folder(installed.resolve(), server.major, server.extensions)
        try:
            measure(server, folder, [names[name]() for name in given.peers or names], effort, results)
        # An interrupted run reports the results so far.
        finally:
            _tell(_header(machine, stolen, server, effort, results), results, given.json)


def _tell(header: dict[str, Any], results: list[Result], file: Path | None) -> None:
    out = Console(width=WIDE, highlight=False, markup=False, emoji=False)
    out.print("", header_lines(header), "", table(results), *failures(results), "", NOTE, sep="\n", soft_wrap=True)
    if file:
        file.write_text(json.dumps(as_json(header, results), indent=1) + "\n", encoding="utf-8")


def _options(names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench-peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", nargs="+", choices=names, metavar="PEER", help=f"all, or of {', '.join(names)}")
    parser.add_argument("--events", type=int, default=200_000, help="of a backlog; a part of it for slow peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="little of everything: does it run? no figure means much")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured there")
    parser.add_argument(
        "--dsn", help=f"a server to use instead; databases peers_… and a schema {SCHEMA} come and go there"
    )
    parser.add_argument("--installed", type=Path, metavar="FOLDER", help="install peers there, and keep them")
    return parser.parse_args()


def _header(
    machine: Machine, stolen: StolenTime, server: PeerServer, effort: Effort, results: list[Result]
) -> dict[str, Any]:
    share = stolen.share()
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": machine.hardware,
        "system": f"{machine.system}, Python {machine.python}",
        "stolen time, %": None if share is None else 100 * share,
        "load of the minute before": round(machine.load * machine.processors, 2),
        "server": f"PostgreSQL {server.described.postgresql}",
        "server settings": server.described.shown_settings,
        "events": f"{effort.events:,} of {SIZE} bytes and {KEYS:,} keys; rounds: {effort.rounds}",
        "peers": {each.peer: f"{each.versions or 'not installed'}; {each.settings}" for each in results},
    }


def _leave(number: int, _: object) -> None:
    """Exit through all cleanups. A second Ctrl-C does not disturb them."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
