"""The command `kafkawire serve`."""
