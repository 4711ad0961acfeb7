"""Statements of programs that try an outbox out: the testing kit, the demo and the chaos runs."""
