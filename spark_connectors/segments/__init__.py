"""Sealed segments, read where they lie: what there is of a partition, which task reads which bytes, and the bytes."""
