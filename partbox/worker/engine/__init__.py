"""Per-process state machine of a worker: owned partitions, their lanes, parked rows, saves and limits."""
