"""Compaction: the newest record of every key stays."""
