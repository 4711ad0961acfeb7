"""From memory to handlers: lanes, runners, lists, and what became of each event."""
