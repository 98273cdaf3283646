"""The command `kafkawire find`."""
