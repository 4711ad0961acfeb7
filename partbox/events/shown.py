"""Names, ids and messages as they stand in a line."""

MAX_SHOWN = 200  # characters of a name or id in a line


def visible(text: str) -> str:
    """The text, cut where it is long, and escaped where it has characters that are not visible."""
    cut = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
    return cut if cut.isprintable() else ascii(cut)[1:-1]
