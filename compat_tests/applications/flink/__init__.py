"""Apache Flink."""
