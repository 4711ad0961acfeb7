"""The only room that speaks SQL: one function per named query."""
