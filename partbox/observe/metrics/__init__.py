"""Metrics: their table, the meters that count them, and their Prometheus form."""
