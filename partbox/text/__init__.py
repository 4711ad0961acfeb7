"""Texts for people: numbers, lengths of time, suggestions and DSNs, with secrets masked."""
