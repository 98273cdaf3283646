"""HTTP beside the Kafka port: health, metrics, and searches for records; it changes nothing."""
