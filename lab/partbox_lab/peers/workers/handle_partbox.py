"""The handler of partbox's worker processes, which import it."""

from reporting import handler

handle = handler(lambda event: event.payload["number"])
