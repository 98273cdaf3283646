"""Check of a topic's bytes.

segments    compares the bytes of a segment with its description: pure
driver      lists the segments and ranges to check, and the tasks that check them
"""
