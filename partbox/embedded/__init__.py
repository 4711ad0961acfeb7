"""Embedded PostgreSQL servers: their programs, their system user and their locks. Nothing here executes SQL."""
