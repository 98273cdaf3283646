"""A small Kafka client for the command line: administration, reads and writes on kafkawire and Apache Kafka."""
