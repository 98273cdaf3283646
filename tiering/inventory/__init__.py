"""Inventory of a store: clusters, topics and segments in it, and their audit."""
