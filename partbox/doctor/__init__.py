"""`partbox doctor`: finds the causes of trouble in an outbox, with remedies.

`db.inspect.evidence` reads the evidence, and `checks` turn it into findings."""
