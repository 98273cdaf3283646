"""Benchmarks of the remote tier."""
