"""Burials and plans in words."""

from partbox.text.wording import counted


def of_burial(buried: int, freed: int) -> str:
    """The fate of the partitions of processes without a lease."""
    what = counted(freed, "partition")
    if not buried:
        return f"{what} had no living owner, and may be claimed"
    return f"{counted(buried, 'process')} died and left {what}, to be claimed by others"


def of_plan(moved: int, members: int) -> str:
    """The moves of a plan, and their reason."""
    what = counted(moved, "partition")
    if members == 0:
        return f"no process is left that delivers: {what} wait for one"
    if members == 1:
        return f"assigned {what} to the only process"
    return f"moving {what}, so that {counted(members, 'process')} have even shares"
