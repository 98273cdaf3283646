"""Replicas on several brokers: who fetches from whom, and who is in sync."""
