"""confluent-kafka against the running broker."""
