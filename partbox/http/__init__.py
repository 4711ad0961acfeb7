"""Serves HTTP in a thread of this process: the address, the server, the names it answers to, a node's own routes."""
