"""The remote tier: upload of sealed segments to object storage, reads, cache, deletion, restore.

Of the engine it uses only `engine.api`, `engine.errors` and `engine.tier`; the start of a broker connects both.
"""
