"""One worker process: reads the log, runs handlers, saves what is finished."""
