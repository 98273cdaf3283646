"""Benchmarks of the connectors and jobs for Spark."""
