"""Apache Kafka's libraries, fetched by Maven once for all runs in this checkout."""

import re
import subprocess
import tempfile
import zlib
from functools import cache
from pathlib import Path
from shutil import which

from partbox.embedded.processes import lock_file

POM = Path(__file__).with_name("kafka-pom.xml")
CACHE = Path(__file__).resolve().parents[2] / ".partbox" / "kafka"
OLDEST_JAVA = 17
PATIENCE = 300.0
"""Seconds for Maven, which fetches some 60 MB."""


class OutOfReach(Exception):
    """Apache Kafka cannot run on this machine; the reason, in one line."""


def libraries() -> Path:
    """The folder of the libraries, which `pom` names; OutOfReach."""
    folder = _fetched()
    if isinstance(folder, str):
        raise OutOfReach(f"Apache Kafka is out of reach: {folder}")
    return folder


@cache
def _fetched() -> Path | str:
    """The folder, or the reason that there is none: it is not tried again in this process."""
    folder = CACHE / f"{zlib.crc32(POM.read_bytes()):08x}"
    if _java() < OLDEST_JAVA:
        return f"it needs Java {OLDEST_JAVA} or newer"
    CACHE.mkdir(parents=True, exist_ok=True)
    with lock_file(CACHE / "lock"):
        return folder if folder.is_dir() else _fetch(folder)


def _java() -> int:
    """The version of the Java on the path, 0 without one."""
    if which("java") is None:
        return 0
    said = subprocess.run(["java", "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"\S+ (\d+)", said)
    return int(version[1]) if version else 0


def _fetch(folder: Path) -> Path | str:
    if (maven := which("mvn")) is None:
        return "it needs Maven"
    with tempfile.TemporaryDirectory(dir=CACHE) as half:  # complete, or not there at all
        copy = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={half}/libraries")
        command = [maven, "--batch-mode", "--quiet", "--file", str(POM), *copy]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            return f"Maven has not fetched it in {PATIENCE:g} s"
        if ran.returncode:
            return f"Maven says {(ran.stdout + ran.stderr).strip().splitlines()[0]}"
        Path(half, "libraries").rename(folder)
    return folder
