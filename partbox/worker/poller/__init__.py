"""The poller: the thread that polls the log, fetches parked rows, and keeps the partitions of a process."""
