"""The command `kafkawire groups`."""
