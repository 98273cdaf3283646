"""The segment engine: partitions as logs of segments.

It knows no socket, no wire message and no metadata store; other packages see `engine.api` and `engine.errors` only.
"""
