"""Descriptions of the machine and of the server, for the head of a report."""

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import psutil

from partbox.cgroup import usable_processors
from partbox_lab.bench import statements
from partbox_lab.bench.cpu import is_here

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine and the versions that a run was measured with."""

    cpu: str
    processors: int
    usable: int  # processors that the cgroup allows
    memory: int  # bytes
    load: float  # per processor, when the run began
    system: str
    python: str
    partbox: str
    psycopg: str

    @classmethod
    def now(cls) -> "Machine":
        """Return the description of this machine, with its load at this moment."""
        processors = os.cpu_count() or 1
        return cls(
            cpu=_model(),
            processors=processors,
            usable=usable_processors(),
            memory=psutil.virtual_memory().total,
            load=round(os.getloadavg()[0] / processors, 2),
            system=f"{platform.system()} {platform.release()}",
            python=platform.python_version(),
            partbox=version("partbox"),
            psycopg=version("psycopg"),
        )

    @property
    def hardware(self) -> str:
        """The processors and the memory, in one line."""
        return f"{self.cpu}, {self.processors} processors ({self.usable} usable), {self.memory / GIB:.1f} GiB"

    def lines(self) -> list[str]:
        """Return the two lines of the report's head."""
        return [
            f"{self.hardware}, load {self.load:.2f} per processor; {self.system}",
            f"partbox {self.partbox}, Python {self.python}, psycopg {self.psycopg}",
        ]


@dataclass(frozen=True, slots=True)
class BenchServer:
    """The PostgreSQL server and its settings."""

    postgresql: str
    embedded: bool
    local: bool  # on this machine, where the CPU time of its processes can be read
    settings: Mapping[str, str]

    @classmethod
    def of(cls, conn: statements.Conn, schema: str, *, embedded: bool) -> "BenchServer":
        """Return the description of the server at the other end of a connection."""
        return cls(
            postgresql=statements.version(conn, schema),
            embedded=embedded,
            local=is_here(statements.backend(conn, schema)),
            settings=statements.settings(conn, schema),
        )

    def line(self) -> str:
        """Return the line of the report's head."""
        where = "embedded" if self.embedded else "on this machine" if self.local else "on another machine"
        return f"PostgreSQL {self.postgresql}, {where}: {self.shown_settings}"

    @property
    def shown_settings(self) -> str:
        """The settings that bear on the results, in one line."""
        return ", ".join(f"{name} {value or 'none'}" for name, value in self.settings.items())


def _model() -> str:
    """Return the name of the processor, or the kind of machine if the kernel does not provide the name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return " ".join(value.split())
    return platform.processor() or platform.machine()
