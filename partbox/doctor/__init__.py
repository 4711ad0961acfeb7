"""`partbox doctor`: evidence is read by `db.evidence`, judged by `checks`, and told as findings with their remedies."""
