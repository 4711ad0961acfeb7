"""Measures partbox beside other outboxes and queues, on one PostgreSQL, with the same events, in alternating runs.

Peers are installed at pinned versions into a folder that is thrown away; the server is started for the run unless
--dsn names one. A peer that cannot be installed or fails is shown with its error. docs/performance.md says how each is
set up.
"""

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import psutil

from partbox_lab.peers.figures import stolen
from partbox_lab.peers.install import Folder
from partbox_lab.peers.outboxes import PEERS
from partbox_lab.peers.peer import KEYS, SIZE
from partbox_lab.peers.report import NOTE, Result, as_json, header_lines, table
from partbox_lab.peers.rounds import QUICK_SECONDS, SECONDS, Effort, measure
from partbox_lab.peers.server import PeerServer, installed_binaries, started

MAJOR = 15  # of PostgreSQL: the one of Debian 12, which PgQ is packaged for
QUICK_EVENTS = 2_000


def main() -> None:
    names = {each.__module__.rpartition(".")[2]: each for each in PEERS}
    given = _options(list(names))
    effort = Effort(given.events, given.rounds, SECONDS)
    if given.quick:
        effort = Effort(min(given.events, QUICK_EVENTS), 1, QUICK_SECONDS)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    os.umask(0o022)  # root's server runs as another user, who reads libraries in the folder
    before, load = psutil.cpu_times(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="partbox-peers-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        with _place(given.dsn, Path(folder)) as place:
            installed = given.installed or Path(folder) / "peers"
            installed.mkdir(exist_ok=True)
            peers = [names[name]() for name in given.peers or names]
            found = Folder(installed.resolve(), place.major, place.extensions)
            results: list[Result] = []
            try:
                measure(place, found, peers, effort, results)
            finally:  # after Ctrl-C what there is
                _tell(_machine(before, load) | _header(place, effort, results), results, given.json)


def _tell(header: dict[str, Any], results: list[Result], file: Path | None) -> None:
    print(f"\n{header_lines(header)}\n\n{table(results)}\n\n{NOTE}", flush=True)
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
    parser.add_argument("--dsn", help="a server to use instead; databases peers_… are made and dropped there")
    parser.add_argument("--installed", type=Path, metavar="FOLDER", help="install peers there, and keep them")
    return parser.parse_args()


def _place(dsn: str | None, folder: Path) -> AbstractContextManager[PeerServer]:
    return nullcontext(PeerServer(dsn, None)) if dsn else started(folder, installed_binaries(MAJOR))


def _machine(before: Any, load: float) -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": f"{os.cpu_count()} CPUs, {psutil.virtual_memory().total >> 30} GiB, {_processor()}",
        "system": f"Linux {platform.release()}, Python {platform.python_version()}",
        "stolen time, %": stolen(before._asdict(), psutil.cpu_times()._asdict()),
        "load of the minute before": load,
    }


def _header(place: PeerServer, effort: Effort, results: list[Result]) -> dict[str, Any]:
    return {
        "server": f"PostgreSQL {place.version}",
        "server settings": ", ".join(f"{name} {value}" for name, value in place.settings.items()),
        "events": f"{effort.events:,} of {SIZE} bytes and {KEYS:,} keys; rounds: {effort.rounds}",
        "peers": {each.peer: f"{each.versions or 'not installed'}; {each.settings}" for each in results},
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def _leave(number: int, _: object) -> None:
    """End with everything put away; a second Ctrl-C does not disturb that."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
