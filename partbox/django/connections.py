"""Closes Django's connections around handlers, as Django does around requests."""

from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections


class Fresh:
    """An interceptor: the handler gets connections that are neither broken nor older than CONN_MAX_AGE.

    Those of an `async def` belong to the thread in which `sync_to_async` runs, and are closed there.
    """

    def __init__(self, event: Any) -> None: ...

    def __enter__(self) -> None:
        close_old_connections()

    def __exit__(self, *_: object) -> None:
        close_old_connections()

    async def __aenter__(self) -> None:
        await sync_to_async(close_old_connections)()

    async def __aexit__(self, *_: object) -> None:
        await sync_to_async(close_old_connections)()
