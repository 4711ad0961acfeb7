"""Create, migrate and check the schema of an outbox, write its migrations as scripts, and grant its roles."""
