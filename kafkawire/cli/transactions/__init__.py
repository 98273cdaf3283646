"""The command `kafkawire transactions`."""
