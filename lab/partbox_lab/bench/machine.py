"""The machine, the programs and the server of a run."""

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from partbox.cgroup import usable_processors
from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.cpu import is_here

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class BenchMachine:
    """The circumstances of the values. `memory` in bytes, `load` per processor when the run began; `local`: the server
    runs on this machine."""

    cpu: str
    processors: int
    usable: int
    memory: int
    load: float
    system: str
    python: str
    partbox: str
    psycopg: str
    postgresql: str
    embedded: bool
    local: bool
    settings: Mapping[str, str]

    def plain(self) -> dict[str, Any]:
        """The same as JSON shows it."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The same for people."""
        where = "embedded" if self.embedded else "on this machine" if self.local else "on another machine"
        return [
            f"{self.cpu}, {self.processors} processors ({self.usable} usable), {self.memory / GIB:.1f} GiB, "
            f"load {self.load:.2f} per processor; {self.system}",
            f"partbox {self.partbox}, Python {self.python}, psycopg {self.psycopg}",
            f"PostgreSQL {self.postgresql}, {where}: "
            + ", ".join(f"{name} {value or 'none'}" for name, value in self.settings.items()),
        ]


def machine(database: BenchDatabase) -> BenchMachine:
    """The machine now."""
    processors = os.cpu_count() or 1
    return BenchMachine(
        cpu=_model(),
        processors=processors,
        usable=usable_processors(),
        memory=psutil.virtual_memory().total,
        load=round(os.getloadavg()[0] / processors, 2),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        partbox=version("partbox"),
        psycopg=version("psycopg"),
        postgresql=statements.version(database.conn, database.schema),
        embedded=database.embedded,
        local=is_here(statements.backend(database.conn, database.schema)),
        settings=statements.settings(database.conn, database.schema),
    )


def _model() -> str:
    """The processor's name, or the kind of machine where the kernel does not tell it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return " ".join(value.split())
    return platform.processor() or platform.machine()
