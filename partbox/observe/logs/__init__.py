"""Log lines: the table of their names, the function that writes one, and their two formats."""

from partbox.observe.logs.formats import JsonLines

__all__ = ["JsonLines"]
