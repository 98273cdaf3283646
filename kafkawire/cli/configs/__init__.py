"""The command `kafkawire configs`."""
