"""Text for people, and what none of them may see: numbers, lengths of time, suggestions, DSNs, secrets."""
