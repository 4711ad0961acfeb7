"""`partbox doctor`: read by `db.inspect.evidence`, judged by `checks`, and told as findings with their remedies."""
