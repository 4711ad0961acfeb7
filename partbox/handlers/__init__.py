"""Handlers: their options, their registry, and the routes from an event to its handler."""

from partbox.handlers.handler import ANY, Handler, Routes, Row, routing
from partbox.handlers.options import Options
from partbox.handlers.registry import BATCH, AnyHandler, Handlers

__all__ = ["ANY", "BATCH", "AnyHandler", "Handler", "Handlers", "Options", "Routes", "Row", "routing"]
