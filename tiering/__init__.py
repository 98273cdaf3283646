"""Sealed segments in object storage will live here: upload, read, cache; it sees `engine.api` only."""
