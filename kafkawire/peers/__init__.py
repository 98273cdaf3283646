"""Requests between brokers, over numbered peer connections."""
