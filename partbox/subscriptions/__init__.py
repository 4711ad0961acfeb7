"""Subscriptions in the hands of an operator."""

from partbox.subscriptions.subscriptions import Subscriptions

__all__ = ["Subscriptions"]
