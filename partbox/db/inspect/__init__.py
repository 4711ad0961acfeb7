"""Read-only statements for people and metrics: statistics, searches and pages of records, evidence for `doctor`."""
