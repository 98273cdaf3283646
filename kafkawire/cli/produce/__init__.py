"""The command `kafkawire produce`."""
