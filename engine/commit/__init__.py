"""Durability of appends: append queue, commit batches, journal, recovery points."""
