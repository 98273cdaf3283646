"""Three real brokers that replicate, under faults that a seed chooses; their clients, and what judges the result."""
