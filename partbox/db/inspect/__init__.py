"""Statements that only read, for people and metrics: statistics, pages of records, the facts of the doctor."""
