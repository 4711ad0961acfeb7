"""Health checks: the state of a supervisor, a probe of its database, and the verdict."""
