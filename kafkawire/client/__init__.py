"""A small Kafka client for the command line: what administration asks of any broker, ours or Apache Kafka's."""
