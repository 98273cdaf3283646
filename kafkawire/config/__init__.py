"""Keys of brokers and topics, their values in effect, and the sources of the values."""
