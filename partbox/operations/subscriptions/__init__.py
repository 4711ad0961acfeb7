"""Subscriptions for operators."""

from partbox.operations.subscriptions.subscriptions import Subscriptions

__all__ = ["Subscriptions"]
