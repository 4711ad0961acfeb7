"""The faults of a chaos run, with their effects, lengths, and needs. `FaultInjector` carries them out."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from partbox.errors import SettingsError

# Settings of the nodes, in seconds.
LEASE: Final = 3.0
HEARTBEAT: Final = 0.5
DRAIN: Final = 20.0
HANDLER_TIMEOUT: Final = 5.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault."""

    name: str
    does: str
    lasts: tuple[float, float] = (0.0, 0.0)  # seconds, from and to
    needs: str | None = None  # the capability without which it is skipped


# Longer than the lease, so that another process takes over.
_BEYOND = (LEASE + 1.0, LEASE + 2.5)
_DOWN = (0.5, 3.0)  # seconds

FAULTS: Final = {
    fault.name: fault
    for fault in (
        Fault("kill-process", "SIGKILL of a worker process"),
        Fault("kill-supervisor", "SIGKILL of a node's supervisor; its processes must end by themselves", _DOWN),
        Fault("kill-node", "SIGKILL of all processes of a node", _DOWN),
        Fault("freeze-process", "SIGSTOP of a worker process beyond its lease, then SIGCONT", _BEYOND),
        Fault("freeze-node", "the same with a whole node", _BEYOND),
        Fault("restart-node", "SIGTERM, and another one in its place", (0.0, 1.0)),
        Fault("scale", "nodes join, or leave gracefully"),
        Fault("cut-backends", "pg_terminate_backend of some of the cluster's sessions"),
        Fault("cut-publishers", "the same of the publishers'"),
        Fault("fail", "handlers raise an error at the first attempt", (0.3, 1.5)),
        Fault("hang", "a handler hangs beyond its timeout"),
        Fault("block-gil", "a handler holds the interpreter's lock for longer than the lease"),
        Fault("restart-fast", "PostgreSQL is stopped (fast) and started", _DOWN, "--embedded"),
        Fault("restart-immediate", "PostgreSQL is stopped (immediate) and recovers", _DOWN, "--embedded"),
        Fault("crash", "SIGKILL of all PostgreSQL's processes; it recovers", _DOWN, "--embedded"),
        Fault("promoted-standby", "a standby of PostgreSQL is promoted in its place", needs="--embedded"),
        Fault("disk-full", "the disk of PostgreSQL has no room", _DOWN, "disk"),
        Fault(
            "wal-full", "the disk has no room for WAL either, so that PostgreSQL ends; then it has room", _DOWN, "disk"
        ),
        Fault("kill-attach", "pg_terminate_backend of who makes a segment of the log, in the middle of it"),
        Fault("kill-truncate", "the same of who empties one"),
        Fault("kill-drop", "the same of who drops one"),
        Fault("net-delay", "a node's connections are slow", (1.0, 4.0), "proxy"),
        Fault("net-hang", "a node's connections stay open and carry nothing, beyond the lease", _BEYOND, "proxy"),
        Fault("net-half", "a node's connections carry what it says, but no answers", _BEYOND, "proxy"),
        Fault("net-cut", "a node's connections are cut, and new ones refused", (0.0, 2.0), "proxy"),
        Fault("conn-hang", "one of a node's connections hangs so, for good or beyond the lease", _BEYOND, "proxy"),
        Fault("backend-stop", "SIGSTOP of a backend that works for a node, beyond the lease", _BEYOND, "--embedded"),
        Fault("large-payloads", "events of 100 KB to 1 MB are published, and some of 5 MB by SQL", (0.5, 2.0)),
        Fault("id-leap", "the ids run a million ahead of a transaction that stays open until all else is delivered"),
        Fault("bell-deaf", "nobody rings for workers that sleep: their flag is lowered all the time", (1.0, 4.0)),
        Fault("bell-storm", "all workers are rung for without end", (1.0, 4.0)),
        Fault("bell-stuck", "the flag of workers that sleep stays up for ever, and all who publish ring", (1.0, 4.0)),
        Fault("limit", "an operator limits both handlers", (1.0, 4.0)),
        Fault("take-privilege", "the nodes' role loses a privilege on a table or the sequence", (1.0, 4.0), "role"),
        Fault(
            "row-security", "row security is on for a table, which hides all rows from the nodes", (1.0, 4.0), "role"
        ),
        Fault("no-reconnect", "sessions of nodes end, and two of them cannot be made anew", (8.0, 11.0), "role"),
        Fault("notify-full", "the server's queue of notifications is full behind another session", (1.0, 4.0), "queue"),
        Fault("clock", "a node's calendar jumps", (2.0, 5.0), "libfaketime"),
    )
}


def chosen(text: str) -> tuple[str, ...]:
    """Return the faults of a list such as "kill-node,hang", "all", or "none", in the order of `FAULTS`."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == ["none"]:
        return ()
    if names == ["all"]:
        return tuple(FAULTS)
    if not names:
        raise SettingsError(f"--faults {text!r} names no fault: give all, none, or some of {', '.join(FAULTS)}")
    for name in names:
        if name not in FAULTS:
            raise SettingsError(f"--faults has an unknown fault {name!r}: {_hint(name)}")
    return tuple(name for name in FAULTS if name in names)


def possible(names: Iterable[str], lacking: dict[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the faults whose needs are met, and the reason for each of the others."""
    skipped = {name: lacking[need] for name in names if (need := FAULTS[name].needs) is not None and need in lacking}
    return tuple(name for name in names if name not in skipped), skipped


def _hint(name: str) -> str:
    close = get_close_matches(name, FAULTS, n=1)
    return f"did you mean {close[0]}?" if close else f"there are all, none, {', '.join(FAULTS)}"
