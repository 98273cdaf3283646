"""The process around a broker: its start, its log, its machine, what would trouble it."""
