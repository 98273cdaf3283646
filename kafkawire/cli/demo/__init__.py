"""The command `kafkawire demo`."""
