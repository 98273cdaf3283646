"""kafkajs."""
