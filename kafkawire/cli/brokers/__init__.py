"""The command `kafkawire brokers`."""
