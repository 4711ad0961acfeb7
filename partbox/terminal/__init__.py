"""Drawing the partitions and their owners on a terminal."""
