"""The thread that reads the log and fetches parked records, what wakes it, and when it looks again."""
