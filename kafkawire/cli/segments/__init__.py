"""The command `kafkawire segments`."""
