"""Health checks of a node: liveness, readiness, and the database behind them."""
