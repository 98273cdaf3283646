"""`kafkawire-spark`: its arguments, and nothing else. Each job has a module here, and decides elsewhere."""
