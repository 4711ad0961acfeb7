"""For the tests of applications that publish events: `partbox.testing.strategies`. Nothing is imported from here."""
