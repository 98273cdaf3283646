"""Command line of `kafkawire-spark`: arguments only. Each job has a module here, and its logic elsewhere."""
