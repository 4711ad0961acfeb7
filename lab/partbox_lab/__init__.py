"""The lab of partbox: measures its budgets, breaks a cluster on purpose, and compares it with its peers."""
