"""The command `kafkawire tier`."""
