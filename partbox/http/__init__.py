"""HTTP in a thread of this process: address, server, allowed host names, and the routes of a node."""
