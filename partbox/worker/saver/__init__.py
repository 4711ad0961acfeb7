"""The thread that saves cursors and parked rows."""
