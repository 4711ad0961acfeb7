"""The handlers that partbox's worker processes import."""

from reporting import handler, list_handler


def _number(event):
    return event.payload["number"]


handle = handler(_number)


class ListReporter:
    """A handler of lists."""

    max_size = 1_000
    handle = staticmethod(list_handler(_number))
