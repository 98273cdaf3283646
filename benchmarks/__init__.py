"""Benchmarks against Apache Kafka, one script per question; results are dated files in results/."""
