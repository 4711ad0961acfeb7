"""The number of processors that this process may use, by its CPU affinity and the CPU quotas of its control groups.

A container's limit of 1.5 processors does not show in the affinity: all processors of the machine are visible, and a
program that starts a process for each is throttled."""

import os
import re
from math import ceil
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_ESCAPED = re.compile(r"\\([0-7]{3})")


class ControlGroup(NamedTuple):
    """A Linux control group: the mount point of its hierarchy, and its folder there."""

    version: int
    mount: PurePosixPath
    folder: PurePosixPath

    def list_ancestors(self) -> list[PurePosixPath]:
        """Return the control group's folder and all folders above it, up to the mount point."""
        # Each of the folders may have a limit.
        return [each for each in (self.folder, *self.folder.parents) if each.is_relative_to(self.mount)]


def usable_processors(root: Path = Path("/")) -> int:
    """Return the number of worker processes that this machine's processors can keep busy, at least 1."""
    # The quota of the control group is rounded up.
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processor_quota = quota(root)
    return processors if processor_quota is None else max(1, min(processors, ceil(processor_quota)))


def quota(root: Path = Path("/")) -> float | None:
    """Return the number of processors to which this process's control groups limit it, or None without a readable
    limit."""
    # The limit is the lowest quota of the control groups.
    # The files are below `root`. Version 2 keeps the quota in `cpu.max`, version 1 in `cpu.cfs_quota_us` and
    # `cpu.cfs_period_us`.
    memberships, mounts = _read_file(root / "proc/self/cgroup"), _read_file(root / "proc/self/mountinfo")
    limits = (
        _read_limit(group.version, root / folder.relative_to("/"))
        for group in find_groups(memberships, mounts)
        for folder in group.list_ancestors()
    )
    return min((processor_quota for processor_quota in limits if processor_quota is not None), default=None)


def find_groups(memberships: str, mounts: str) -> list[ControlGroup]:
    """Parse this process's control groups from the texts of /proc/self/cgroup and /proc/self/mountinfo."""
    mounted = [each for line in mounts.splitlines() if (each := _parse_mount(line)) is not None]
    found = []
    for line in memberships.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        version = 1 if controllers else 2
        if path.startswith("/") and (version == 2 or "cpu" in controllers.split(",")):
            found += [
                ControlGroup(version, at, _group_folder(at, top, path)) for of, top, at in mounted if of == version
            ]
    return found


def _parse_mount(line: str) -> tuple[int, PurePosixPath, PurePosixPath] | None:
    """Parse a line of mountinfo: the control group version, root and mount point, or None for other mounts."""
    # Other mounts are those that are no hierarchy for processors.
    left, _, right = line.partition(" - ")
    fields, kind = left.split(" "), right.split(" ")
    if len(fields) < 5 or len(kind) < 3 or not fields[4].startswith("/"):
        return None
    top, at = (PurePosixPath(_ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), field)) for field in fields[3:5])
    if kind[0] == "cgroup2":
        return 2, top, at
    return (1, top, at) if kind[0] == "cgroup" and "cpu" in kind[2].split(",") else None


def _group_folder(at: PurePosixPath, top: PurePosixPath, path: str) -> PurePosixPath:
    """Return the folder of the control group `path` below its mount point."""
    # In a container, the mount often shows only the container's own part.
    group = PurePosixPath(path)
    return at / group.relative_to(top) if group.is_relative_to(top) and ".." not in group.parts else at


def _read_limit(version: int, folder: Path) -> float | None:
    if version == 2:
        quota_text, _, period = _read_file(folder / "cpu.max").partition(" ")
        return processor_quota(quota_text, period)
    return processor_quota(_read_file(folder / "cpu.cfs_quota_us"), _read_file(folder / "cpu.cfs_period_us"))


def processor_quota(quota: str, period: str) -> float | None:
    """Return the number of processors that a control group's CPU quota allows, or None without a limit."""
    # Both arguments are in microseconds. There is no limit if the quota is "max", -1 or empty.
    try:
        parts = int(quota), int(period)
    except ValueError:
        return None
    return parts[0] / parts[1] if min(parts) > 0 else None


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
