"""Keys of brokers and topics: what there is, what is in effect, and why."""
