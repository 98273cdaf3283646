"""rskafka."""
