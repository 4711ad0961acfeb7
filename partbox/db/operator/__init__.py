"""Statements of what operators do: dead and blocked events, subscriptions, purge, rebase, imports."""
