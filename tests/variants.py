"""Several variants in one test: which of them has failed is said with the failure."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def named(name: object) -> Iterator[None]:
    """Adds the variant's name to whatever is raised inside."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"of the variant {name!r}")
        raise
