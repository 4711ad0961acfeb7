"""The choice of lines by name."""

from collections.abc import Sequence
from difflib import get_close_matches

from partbox.errors import SettingsError
from partbox_lab.bench.family import LineSet


def chosen_lines(lines: LineSet, names: Sequence[str]) -> frozenset[str]:
    """The lines of these names, all of the set if none is named; SettingsError for a name that no line has."""
    known = [each.name for each in lines.budgets]
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "`partbox bench --list` names them"
            raise SettingsError(f"there is no line {name!r}: {hint}")
    return frozenset(names or known)
