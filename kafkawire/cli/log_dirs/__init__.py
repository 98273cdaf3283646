"""The command `kafkawire log-dirs`."""
