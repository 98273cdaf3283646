"""Stock Kafka clients, a folder each, and a recorder of their requests."""
