"""Quarkus with SmallRye's messages from Kafka."""
