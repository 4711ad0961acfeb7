"""Tables and pages that commands print."""
