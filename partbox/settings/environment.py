"""Settings among the variables of an environment, and the warning about variables that only look like settings."""

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple

from partbox.text.printing import printable_line

PREFIX: Final = "PARTBOX_"
CONFIG: Final = "PARTBOX_CONFIG"
MOST: Final = 8  # variables that are named

# Read by `settings`, the scripts, `worker --reload` and the test suite; not settings.
_OTHERS = (CONFIG, "PARTBOX_PYTHON", "PARTBOX_RELOADED")
_TEST_PREFIX = "PARTBOX_TEST_"

# What Kubernetes adds to every container for a service named partbox, or partbox-and-more.
_OF_SERVICES = re.compile(
    r"PARTBOX_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


class Sorted(NamedTuple):
    """`settings`: (value, variable) by the setting's name; `strays`: variables that are no settings, in order."""

    settings: dict[str, tuple[str, str]]
    strays: list[str]


def sorted_out(variables: Mapping[str, str], known: Collection[str]) -> Sorted:
    """The variables that give one of the `known` settings, and those that give none; an empty one counts as not set."""
    settings, strays = {}, []
    for variable in sorted(variables):
        name = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX) or not variables[variable]:
            continue
        if name in known:
            settings[name] = (variables[variable], variable)
        elif variable not in _OTHERS and not variable.startswith(_TEST_PREFIX):
            strays.append(variable)
    return Sorted(settings, strays)


def complaint(strays: Sequence[str], known: Collection[str]) -> str | None:
    """One line that names the strays, with the setting that was perhaps meant; None without any."""
    if not strays:
        return None
    named = ", ".join(f"{printable_line(each, 60)}{_hint(each, known)}" for each in strays[:MOST])
    more = f" and {len(strays) - MOST} more" if len(strays) > MOST else ""
    text = f"ignored, for no setting has such a name: {named}{more}"
    if any(map(_OF_SERVICES.fullmatch, strays)):
        return f"{text}; Kubernetes adds such for services, unless the pod says `enableServiceLinks: false`"
    return f"{text}; `partbox config` lists all settings"


def _hint(variable: str, known: Collection[str]) -> str:
    """The setting that was perhaps meant. Values are not shown: any may be a secret."""
    if _OF_SERVICES.fullmatch(variable):
        return ""
    close = get_close_matches(variable.removeprefix(PREFIX).lower(), known, n=1)
    return f" (did you mean {PREFIX}{close[0].upper()}?)" if close else ""
