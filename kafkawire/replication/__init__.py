"""Replication between brokers: followers fetch from leaders, and leaders change their ISRs."""
