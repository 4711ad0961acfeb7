"""Which chains of parked rows wait for a permit or a time, and which are trouble."""

import pytest

from partbox.protocol.parking import ParkedRow, RowState, is_chain_waiting


@pytest.mark.parametrize("before", [True, False])
def test_a_chain_waits_if_its_head_waits_and_stays_as_it_was_if_its_head_is_held(before):
    def head(state, **more):
        return ParkedRow(1, state, 0, True, **more)

    assert is_chain_waiting(head(RowState.DEFERRED, waits=True), before=before)
    for trouble in (RowState.RETRYING, RowState.DEFERRED, RowState.READY, RowState.DEAD):
        assert not is_chain_waiting(head(trouble), before=before)
    assert is_chain_waiting(head(RowState.HELD), before=before) is before
