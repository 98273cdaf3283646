"""Aborted transactions of a log, and their indexes."""
