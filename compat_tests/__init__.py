"""Black box tests: real clients and Spark against a running broker."""
