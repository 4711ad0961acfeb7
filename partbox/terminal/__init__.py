"""Live views of a cluster on a terminal."""
