"""The state machine of one worker in memory, free of threads, connections, clocks, logs and handlers."""
