"""The command `kafkawire topics`."""
