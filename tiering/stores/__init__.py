"""The back ends of `tiering.object_store`."""
