"""From memory to the database: what a save says, and when one is made."""
