"""Manifests: the segments of a partition in the tier, as a pure state machine, in bytes, and in a store."""
