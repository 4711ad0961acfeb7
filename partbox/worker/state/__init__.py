"""The memory of a worker: partitions, their lanes, and what is suspected of killing a process."""
