"""What a worker holds in memory: partitions, their lanes, and what is suspected of killing a process."""
