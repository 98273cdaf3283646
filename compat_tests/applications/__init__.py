"""Systems that are built on Kafka clients, run against the broker."""
