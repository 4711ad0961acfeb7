"""Sinks of events: brokers, webhooks, files (`Sink`), and sinks of dead events (`dead`).

A sink is a handler of lists: it sends what it gets, and an event counts as handled when the broker has acknowledged it.
Each kind of broker has a file and an extra of its own, loaded with the first sink of its kind.
"""

from partbox.sinks.message import Message
from partbox.sinks.sink import Sink
from partbox.sinks.urls import sink_of

__all__ = ["Message", "Sink", "sink_of"]
