"""Runs transactional handlers: their effects and the cursor that has passed their events commit together.

One transaction at a time, of at most `MOST` events or `LONGEST` seconds, on a connection of its own. Each event runs in
a savepoint; one that fails, or is not done, is rolled back to it and parked in the same transaction. The last statement
is the fenced save, so partition rows are locked only then; if a partition is no longer mine everything is rolled back.

A new record is started only if after this save the cursor will have passed it: all new ones before it are finished,
parked or in the same transaction, and no late one is unfinished. So a partition goes on in the order of ids. Late
records are parked when they are read and run as parked ones, whose rows go with their effects; these wait only until a
save has passed them. Whatever stands in the way for over a second, by running somewhere else, is parked. Meanwhile the
ordinary saver leaves the partition alone.

Whatever goes wrong, what was read is forgotten and read again from the saved cursors, which say whether the transaction
has committed; until then its lanes stay as they are, so that nothing passes its events. `blame` has whose error it was.
"""
