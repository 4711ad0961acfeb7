"""Handlers: their options, their registry, and the routes from an event to its handler."""

from partbox.handlers.handler import ANY, Handler, RouteRow, Routes, build_fallback
from partbox.handlers.options import Options
from partbox.handlers.registry import DEFAULT_BATCH_SIZE, AnyHandler, Handlers

__all__ = [
    "ANY",
    "DEFAULT_BATCH_SIZE",
    "AnyHandler",
    "Handler",
    "Handlers",
    "Options",
    "RouteRow",
    "Routes",
    "build_fallback",
]
