"""Benchmarks against Apache Kafka: a folder for each subject, a script for each question; results/ has dated files."""
