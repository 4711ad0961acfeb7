"""The parts of `partbox.observe.tracing`: spans of polls, trace context in headers, span attributes."""
