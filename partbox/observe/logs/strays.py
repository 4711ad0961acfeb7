"""Warns once of environment variables that look like settings and are none.

They are not errors: Kubernetes adds PARTBOX_SERVICE_HOST and the like to containers beside a service of that name.
"""

import logging

from partbox import settings
from partbox.observe.logs.log_event import log_event

log = logging.getLogger("partbox")

_said: set[str] = set()


def tell_strays() -> None:
    """Log them, unless this process has logged the same before."""
    text = settings.strays()
    if text is not None and text not in _said:
        _said.add(text)
        log_event(log, "unknown_variables", "%s", text)


def pass_over() -> str | None:
    """The text that `tell_strays` would log; from now on it counts as logged."""
    text = settings.strays()
    _said.update(() if text is None else (text,))
    return text
