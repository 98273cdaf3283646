"""Reads beyond what is in memory, and searches."""
