"""All that one worker holds in memory, as one state machine: no thread, connection, clock, log or handler."""
