"""The catalogue of an application's events, and a check that changed event classes break no reader. Nothing here needs
a database."""
