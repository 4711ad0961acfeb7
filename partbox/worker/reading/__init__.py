"""From the log to memory: the poller, and what its thread reads."""
