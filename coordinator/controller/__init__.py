"""The controller: elections, reassignments, fencing, and reconciliation of the metadata with live brokers."""
