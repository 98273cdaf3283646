"""Generated message classes, one module per Kafka API. Written by tools/generate_messages.py."""
