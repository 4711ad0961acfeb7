"""The laboratory of partbox: its budgets measured, a cluster broken on purpose, its peers beside it."""
