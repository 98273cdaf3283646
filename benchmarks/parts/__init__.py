"""Benchmarks of parts of the broker, and of the least possible cost, without Apache Kafka."""
