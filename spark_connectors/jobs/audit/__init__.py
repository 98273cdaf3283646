"""Whether a topic's bytes are in order.

segments    whether the bytes of a segment are what is told of it: pure
driver      what there is to look at, and tasks that do it
"""
