"""Segments of a log: files, sparse indexes, footers, rolling, and replacement."""
