"""HTTP beside the Kafka port: health, metrics and, later, administration."""
