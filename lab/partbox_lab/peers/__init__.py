"""Measures partbox and its peers on one server.

__main__    options, header
rounds      the order of the runs, and peers that fail
peer        the protocol that every peer is behind; the events
outboxes/   one file a peer: how it is installed, published to and run
workers/    the programs that consume, each run by the peer's own interpreter
install     virtual environments, node_modules and Debian packages in a folder that is thrown away
server      the server of the bench's workspace, with a database for each run
processes   the worker processes of one run, and what they report
measure     publishing, draining, latency
figures     pure arithmetic: rates, disorder
report      the table, the header, JSON

The workspace, the machine's description, CPU time, turns and quantiles are those of `partbox_lab.bench`.
"""
