"""The SQL of event delivery: instances, partitions, cursors, pages of the log, and parked rows."""
