"""Benchmarks of three brokers that replicate, mostly beside Apache Kafka."""
