"""Libraries of brokers, which come with extras."""

import logging
from functools import cache
from importlib import import_module
from typing import Any, Final

from partbox.errors import SettingsError

LOGGERS: Final = {
    "rabbitmq": ("aio_pika", "aiormq"),
    "nats": ("nats",),
    "webhook": ("httpx2", "httpcore2"),
    "sqs": ("boto3", "botocore", "urllib3"),
}
"""Loggers of the libraries of an extra. They log every message: its URL at INFO, its payload at DEBUG."""


def library(module: str, extra: str) -> Any:
    """The module; SettingsError with the remedy if it is not installed."""
    try:
        found = import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module}.".startswith(f"{missing.name}."):
            raise
        named = missing.name.partition(".")[0]
        raise SettingsError(f"sending there needs the library {named}: pip install 'partbox[{extra}]'") from None
    _quiet(extra)
    return found


@cache
def _quiet(extra: str) -> None:
    """Set their level to WARNING, unless the application has set one."""
    for log in map(logging.getLogger, LOGGERS.get(extra, ())):
        if log.level == logging.NOTSET:
            log.setLevel(logging.WARNING)
