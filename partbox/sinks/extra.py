"""Libraries of brokers, which come with extras."""

import asyncio
import logging
from collections.abc import Coroutine
from functools import cache
from typing import Any, Final, TypeVar

from partbox import platform
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
    found = platform.library(module, extra, f"sending there needs the library {module.partition('.')[0]}")
    _quiet(extra)
    return found


@cache
def _quiet(extra: str) -> None:
    """Set their level to WARNING, unless the application has set one."""
    for log in map(logging.getLogger, LOGGERS.get(extra, ())):
        if log.level == logging.NOTSET:
            log.setLevel(logging.WARNING)


PATIENCE: Final = 5.0  # seconds

T = TypeVar("T")


def answer(question: Coroutine[Any, Any, T]) -> T | None:
    """The answer of the broker, or None if there is none now; raises SettingsError."""
    try:
        return asyncio.run(asyncio.wait_for(question, PATIENCE))
    except SettingsError:
        raise
    except Exception:
        return None
