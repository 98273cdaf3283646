"""The implementations of `tiering.object_store`."""
