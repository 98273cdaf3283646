"""Compacted topics, by stock clients and Kafka's own tools."""
