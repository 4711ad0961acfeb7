"""A process tells how much memory it has in use, and a leak is told from chance."""

import pytest
from in_use import InUse, Teller, grown, told


@pytest.mark.usefixtures("collect")
def test_kept_memory_is_counted_as_in_use_until_it_is_freed(tmp_path):
    def used() -> InUse:
        Teller(tmp_path).tell()
        return told(tmp_path)

    assert told(tmp_path) == (0.0, 0, 0.0)
    before = used()
    kept = [object() for _ in range(50_000)]
    full = used()
    assert full.blocks - before.blocks > 0.9 * len(kept)
    del kept
    assert used().blocks - before.blocks < 5_000


def test_only_figures_that_exceed_their_tolerance_count_as_growth():
    before = InUse(1.0, 320_000, 17.0)
    assert grown(before, InUse(2.0, 323_000, 18.0)) == {}
    assert grown(before, InUse(2.0, 340_000, 18.0)) == {"blocks": (320_000, 340_000)}
    assert grown(before, InUse(2.0, 300_000, 24.0)) == {"malloced": (17.0, 24.0)}
