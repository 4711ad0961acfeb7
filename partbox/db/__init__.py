"""Access to PostgreSQL: connections, deadlines, and one function per named query. No other package contains SQL."""
