"""Reports to observers, to the log, and to the process's own row in the database."""
