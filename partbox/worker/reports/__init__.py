"""Reports of a worker to observers, to the log, and to other processes."""
