"""Reads from disk and remote tier, and searches."""
