"""Handlers: their options, their registry, and the routes from an event to its handler."""

from partbox.handlers.handler import Handler, Row, routing
from partbox.handlers.options import Options
from partbox.handlers.registry import BATCH, AnyHandler, Handlers
from partbox.handlers.routes import ANY, Routes

__all__ = ["ANY", "BATCH", "AnyHandler", "Handler", "Handlers", "Options", "Routes", "Row", "routing"]
