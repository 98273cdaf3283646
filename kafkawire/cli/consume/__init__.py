"""The command `kafkawire consume`."""
