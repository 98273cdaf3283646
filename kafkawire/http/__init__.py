"""HTTP beside the Kafka port: health and metrics; administration comes later."""
