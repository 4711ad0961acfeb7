"""The table that ends a run: a name, a number and a remark in each row."""

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text


def figures(rows: Iterable[tuple[str, str, str | Text]]) -> Table:
    """The rows as a table without lines, numbers to the right."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column()
    made.add_column(justify="right", style="bold")
    made.add_column()
    for name, number, remark in rows:
        made.add_row(name, number, Text(remark) if isinstance(remark, str) else remark)
    return made
