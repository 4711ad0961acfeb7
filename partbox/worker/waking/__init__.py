"""Decides when the poller looks again: by the bell (see `partbox.protocol.bell`), or by the clock where that is off."""
