"""Measurements of partbox and its peers on one server.

    __main__     options, header
    rounds       the order of the runs, and peers that fail
    peer         the interface of a peer, and the events
    outboxes/    one file per peer: how to install it, publish to it and run it
    workers/     the consuming programs, each run by its peer's interpreter
    install      virtual environments, node_modules and Debian packages in a temporary folder
    server       the server of the bench's workspace, with a database for each run
    processes    the worker processes of one run, and their reports
    measure      publishing, draining, latency
    figures      pure arithmetic: rates, disorder
    report       the table, the header, JSON

The workspace, the machine's description, CPU time, turns and quantiles come from `partbox_lab.bench`."""
