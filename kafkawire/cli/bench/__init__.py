"""The command `kafkawire bench`."""
