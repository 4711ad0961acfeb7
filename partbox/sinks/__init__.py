"""Where events can be sent to by a URL: a file, the standard output, an HTTP endpoint."""

from partbox.sinks.sink import Sink, sink_of

__all__ = ["Sink", "sink_of"]
