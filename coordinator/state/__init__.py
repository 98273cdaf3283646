"""State of coordinators: a log of keys and values, and the cache that makes loading it quick."""
