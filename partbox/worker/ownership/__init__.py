"""Claims, drains and loses the partitions of one process."""
