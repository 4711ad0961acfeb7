"""The places from which settings are read: command-line options, keywords, environment variables and a TOML file.

The first place that has a value takes precedence. The file is the one that `PARTBOX_CONFIG` names, else `partbox.toml`
in the current folder. Its table `[partbox]` is read, or its top level if there is no such table."""

import os
import re
import tomllib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

from partbox.errors import SettingsError
from partbox.text.dsn import BYTE_ORDER_MARK, strip_text
from partbox.text.printing import shorten_line
from partbox.text.secrets import mask_secrets

PREFIX: Final = "PARTBOX_"
CONFIG: Final = "PARTBOX_CONFIG"
MOST: Final = 8  # variables that are named

# Variables that are no settings: `settings`, scripts, `worker --reload` and the test suite read them.
_OTHERS = (CONFIG, "PARTBOX_PYTHON", "PARTBOX_RELOADED")
_TEST_PREFIX = "PARTBOX_TEST_"

# Variables that Kubernetes adds to every container for a service named partbox, or partbox-and-more.
_OF_SERVICES = re.compile(
    r"PARTBOX_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


class SourcedValue(NamedTuple):
    """The value of a setting, and the place from which it was read.

    `origin` names the place as a person would: a file, an environment variable, "keyword", or a command-line option."""

    value: Any
    origin: str


def sources(
    flags: Mapping[str, Any], keywords: Mapping[str, Any], known: Collection[str]
) -> tuple[Mapping[str, SourcedValue], ...]:
    """Read settings from file, environment, keywords and options, as one dict for each. The last takes precedence."""
    # The options are those of a command line. A flag of None counts as not given.
    variables = {name: SourcedValue(*each) for name, each in sort_variables(os.environ, known).settings.items()}
    return _from_file(), variables, from_keywords(keywords), from_flags(flags)


def from_keywords(given: Mapping[str, Any]) -> dict[str, SourcedValue]:
    """Convert keywords to setting values with the origin "keyword"."""
    return {name: SourcedValue(value, "keyword") for name, value in given.items()}


def from_flags(given: Mapping[str, Any]) -> dict[str, SourcedValue]:
    """Convert command-line options to setting values with the option's name, such as "--lease", as origin."""
    # A value of None means that the option is not given.

    def option(name: str, value: Any) -> str:
        return f"--{'no-' if value is False else ''}{name.replace('_', '-')}"

    return {name: SourcedValue(value, option(name, value)) for name, value in given.items() if value is not None}


def _from_file() -> dict[str, SourcedValue]:
    # The environment is searched, because a name with a byte order mark cannot be encoded in every locale.
    marked = (value for name, value in os.environ.items() if name == f"{BYTE_ORDER_MARK}{CONFIG}")
    named = strip_text(os.environ.get(CONFIG) or next(marked, ""))
    path = Path(named or "partbox.toml")
    if named and not path.is_file():
        raise SettingsError(f"{CONFIG} names {named!r}, which is not a file: create it or unset {CONFIG}")
    try:
        table = tomllib.loads(_read_utf8(path)) if path.is_file() else {}
    # Python raises these errors also for numbers that are too long and for tables that are nested too deeply.
    except (ValueError, RecursionError, OSError) as error:
        raise SettingsError(shorten_line(f"{path} cannot be read as TOML: {error}")) from None
    table = table.get("partbox", table)
    if not isinstance(table, dict):
        raise SettingsError(
            f"partbox = {shorten_line(mask_secrets(str(table)))} in {shorten_line(str(path))} must be a table: "
            "write [partbox] and the settings below it"
        )
    return {name: SourcedValue(value, str(path)) for name, value in table.items()}


def _read_utf8(path: Path) -> str:
    content = path.read_bytes()
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or b"\0" in content:
        raise SettingsError(f"{shorten_line(str(path))} is in UTF-16 or not text: save it as UTF-8")
    return content.decode("utf-8-sig")


class SortedVariables(NamedTuple):
    """Environment variables, split into settings and variables that only look like settings (strays).

    `settings` maps a setting to (value, variable). `strays` are the sorted names of variables."""

    settings: dict[str, tuple[str, str]]
    strays: list[str]


def sort_variables(variables: Mapping[str, str], known: Collection[str]) -> SortedVariables:
    """Split environment variables into `known` settings and variables that only look like settings."""
    # An empty variable counts as not set. The first variable in a file may begin with the byte order mark of the file.
    # The variable without the mark wins.
    settings, strays = {}, []
    for given in sorted(variables, key=lambda each: (not each.startswith(BYTE_ORDER_MARK), each)):
        variable = given.removeprefix(BYTE_ORDER_MARK)
        name = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX) or not strip_text(variables[given]):
            continue
        if name in known:
            settings[name] = (variables[given], variable)
        elif variable not in _OTHERS and not variable.startswith(_TEST_PREFIX):
            strays.append(variable)
    return SortedVariables(settings, strays)


def strays_text(strays: Sequence[str], known: Collection[str]) -> str | None:
    """Return a one-line warning about environment variables that are no settings, or None."""
    # The warning has hints about misspelt names.
    if not strays:
        return None
    named = ", ".join(f"{shorten_line(each, 60)}{_format_hint(each, known)}" for each in strays[:MOST])
    more = f" and {len(strays) - MOST} more" if len(strays) > MOST else ""
    text = f"ignored environment variables that are not settings: {named}{more}"
    if any(map(_OF_SERVICES.fullmatch, strays)):
        return f"{text}; Kubernetes adds such variables for services, unless the pod says `enableServiceLinks: false`"
    return f"{text}; `partbox config` lists all settings"


def _format_hint(variable: str, known: Collection[str]) -> str:
    # The hint is a "did you mean" or "". Values are not shown, because any may be a secret.
    if _OF_SERVICES.fullmatch(variable):
        return ""
    close = get_close_matches(variable.removeprefix(PREFIX).lower(), known, n=1)
    return f" (did you mean {PREFIX}{close[0].upper()}?)" if close else ""
