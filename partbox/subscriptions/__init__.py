"""Subscriptions for operators."""

from partbox.subscriptions.subscriptions import Subscriptions

__all__ = ["Subscriptions"]
