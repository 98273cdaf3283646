"""Reads of segments that only the tier has, with a cache of their parts."""
