"""`partbox doctor`: finds the causes of trouble in an outbox, with remedies."""
