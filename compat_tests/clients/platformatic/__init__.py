"""@platformatic/kafka, with the version of Node that it needs."""
