"""Pure decisions: plain data in, plain data out; no clock, no database, no threads."""
