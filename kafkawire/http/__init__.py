"""HTTP beside the Kafka port: health, metrics, searches for records, and appends at offset."""
