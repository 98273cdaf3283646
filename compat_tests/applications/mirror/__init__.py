"""MirrorMaker 2 of Apache Kafka."""
