"""Runner threads, event loops and transactions that call the handlers of a worker."""
