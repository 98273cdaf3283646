"""Sealed segments in object storage: upload, read, cache, delete, restore.

It sees of the engine `engine.api`, `engine.errors` and `engine.tier`; whoever starts a broker puts the two together.
"""
