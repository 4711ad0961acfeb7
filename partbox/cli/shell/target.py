"""Finds the outbox that a command line names as MODULE:OUTBOX."""

import importlib
import signal
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

from partbox.callables import short_path
from partbox.cli.shell.stopping import interruptible
from partbox.codecs import Codecs
from partbox.errors import PartboxError, SettingsError
from partbox.handlers import Handlers
from partbox.outbox import Outbox

_NOT_THEIRS = ("<frozen", str(Path(importlib.__file__).parent), str(Path(__file__).parents[2]))


def load_configured(target: str, flags: Mapping[str, Any]) -> tuple[Handlers, Codecs]:
    """Import the outbox that `target` names, configure it by the `flags`, and return its handlers and codecs."""
    # The `flags` are those of the command line. This is called in a worker process, so that handlers publish to the
    # database from which the node delivers.
    outbox = load_target(target)
    outbox._configure(outbox._database.with_flags(flags))
    return outbox.handlers, outbox.codecs


def load_target(target: str) -> Outbox:
    """Import the outbox object that `target` names, such as "module:outbox". Raise SettingsError if that fails."""
    # Modules in the current folder are found as well. The error has one line.
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute):
        raise SettingsError(f"target {target!r} must be MODULE:OUTBOX, such as shop:outbox for `outbox` in shop.py")
    if module_name.endswith(".py") or "/" in module_name:
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise SettingsError(f"target {target!r} must name a module, not a file: write {dotted}:{attribute}")
    module = _import_target(module_name)
    try:
        found = reduce(getattr, attribute.split("."), module)
    except AttributeError:
        raise SettingsError(
            f"module {module.__name__!r} has no {attribute!r}: {_suggest_outbox(module, attribute)}"
        ) from None
    if not isinstance(found, Outbox):
        kind = f"is of type {type(found).__qualname__}, not an Outbox"
        raise SettingsError(f"{module.__name__}:{attribute} {kind}: {_suggest_outbox(module, attribute)}")
    return found


def _import_target(name: str) -> ModuleType:
    # The current folder may have been deleted.
    with suppress(FileNotFoundError):
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.insert(0, here)
    try:
        # An import may otherwise drop the KeyboardInterrupt with a traceback.
        with interruptible(signal.SIGINT):
            return importlib.import_module(name)
    # The application's code may raise anything when it is imported.
    except (Exception, SystemExit) as error:
        raise SettingsError(_import_error_text(name, error)) from error


def _import_error_text(name: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
        home = f"the folder that holds {name.split('.', maxsplit=1)[0]}"
        return f"there is no module {error.name!r}: check the name, or run the command in {home}"
    said = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    what = said if isinstance(error, PartboxError) else f"{type(error).__name__}: {said}; correct that line"
    return f"module {name!r} cannot be imported ({_find_error_location(error)}): {what}"


def _find_error_location(error: BaseException) -> str:
    # The location is in the user's code: frames of partbox and the import machinery are skipped.
    if isinstance(error, SyntaxError) and error.filename:
        return f"{short_path(error.filename)}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(_NOT_THEIRS)] or frames
    return f"{short_path(theirs[-1].filename)}:{theirs[-1].lineno}"


def _suggest_outbox(module: ModuleType, attribute: str) -> str:
    outboxes = [name for name, value in vars(module).items() if isinstance(value, Outbox)]
    close = get_close_matches(attribute, outboxes, n=1, cutoff=0.0)
    name = module.__name__
    return f"did you mean {name}:{close[0]}?" if close else f"write {attribute} = Outbox() in {name}"
