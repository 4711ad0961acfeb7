"""Processors of a container: what its control groups allow, read from trees of files like the kernel's."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox import cgroup
from partbox.cgroup import find_groups, processor_quota, quota, usable_processors

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "33 25 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct"
OTHER = "34 25 0:30 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory"


@pytest.fixture
def tree(tmp_path):
    """Writes a tree of files; the folder to read as if it were the root."""

    def write(files: dict[str, str]) -> Path:
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return tmp_path

    return write


def process(memberships: str, *mounts: str) -> dict[str, str]:
    return {"proc/self/cgroup": memberships, "proc/self/mountinfo": "\n".join(mounts) + "\n"}


def test_the_quota_of_version_2_is_that_of_the_own_group(tree):
    here = process("0::/pod/app\n", V2)
    assert quota(tree(here | {"sys/fs/cgroup/pod/app/cpu.max": "150000 100000\n"})) == 1.5


def test_the_smallest_quota_of_a_group_and_its_parents_counts(tree):
    files = {
        "sys/fs/cgroup/pod/app/cpu.max": "400000 100000\n",
        "sys/fs/cgroup/pod/cpu.max": "200000 100000\n",
        "sys/fs/cgroup/cpu.max": "max 100000\n",
        "cpu.max": "1 100000\n",  # above the mount: no group
    }
    assert quota(tree(process("0::/pod/app\n", V2) | files)) == 2


def test_a_container_that_sees_only_its_own_groups_reads_the_quota_of_the_mount(tree):
    seen = V2.replace(" / /sys", " /docker/4711 /sys")
    files = {"sys/fs/cgroup/cpu.max": "50000 100000\n"}
    assert quota(tree(process("0::/docker/4711\n", seen) | files)) == 0.5
    assert quota(tree(process("0::/../elsewhere\n", V2) | files)) == 0.5


def test_the_quota_of_version_1_and_of_both_together(tree):
    files = {
        "sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us": "250000\n",
        "sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/unified/cpu.max": "100000 100000\n",
        "sys/fs/cgroup/memory/docker/1/cpu.cfs_quota_us": "1\n",
    }
    own = "4:cpu,cpuacct:/docker/1\n3:memory:/docker/1\n0::/docker/1\n"
    assert quota(tree(process(own, V1, OTHER) | files)) == 2.5
    both = V2.replace("/sys/fs/cgroup rw", "/sys/fs/cgroup/unified rw")
    assert quota(tree(process(own, V1, OTHER, both) | files)) == 1


def test_an_unreadable_quota_counts_as_none(tree, tmp_path):
    assert quota(tmp_path) is None
    assert quota(tree(process("nonsense\n0::\n:::\n0::/pod\n", "nonsense", "1 2 3 - cgroup2", V2))) is None
    (tmp_path / "sys/fs/cgroup/pod/cpu.max").mkdir(parents=True)
    assert quota(tmp_path) is None


def test_a_mount_point_with_a_blank_is_found(tree):
    files = {"my groups/pod/cpu.max": "100000 100000"}
    assert quota(tree(process("0::/pod\n", V2.replace("/sys/fs/cgroup", r"/my\040groups")) | files)) == 1


@pytest.mark.parametrize(
    ("most", "there", "usable"),
    [("150000", 8, 2), ("10000", 8, 1), ("400000", 2, 2), ("400001", 8, 5), ("max", 3, 3), ("0", 3, 3)],
)
def test_usable_processors_are_rounded_up_and_between_one_and_those_of_the_affinity(
    monkeypatch, tree, most, there, usable
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(there)))
    root = tree(process("0::/\n", V2) | {"sys/fs/cgroup/cpu.max": f"{most} 100000"})
    assert usable_processors(root) == usable


def test_the_default_number_of_processes_is_that_of_usable_processors(monkeypatch, tree):
    from partbox.settings import Settings

    root = tree(process("0::/\n", V2) | {"sys/fs/cgroup/cpu.max": "100000 100000"})
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr(cgroup.usable_processors, "__defaults__", (root,))
    assert Settings().processes == 1


@given(st.text(max_size=12), st.text(max_size=12))
def test_any_text_is_read_as_a_quota_or_as_none(quota, period):
    found = processor_quota(quota, period)
    assert found is None or found > 0


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_is_read_as_a_list_of_groups_or_as_none(memberships, mounts):
    for group in find_groups(memberships, mounts):
        assert list(group.list_ancestors())[-1] in (group.mount, type(group.mount)("/"))
