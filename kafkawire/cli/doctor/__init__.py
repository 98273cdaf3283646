"""The command `kafkawire doctor`."""
