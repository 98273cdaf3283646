"""A partition's log: segments, their indexes and footers, epochs, producers, and how it is opened again."""
