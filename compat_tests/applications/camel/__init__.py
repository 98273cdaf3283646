"""Apache Camel."""
