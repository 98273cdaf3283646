"""Benchmarks of one broker, mostly beside Apache Kafka."""
