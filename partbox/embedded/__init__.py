"""PostgreSQL servers from the wheel: their programs, their system user, their locks. No SQL is spoken here."""
