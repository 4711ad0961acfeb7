"""Claiming, releasing and losing partitions."""
