"""Starts and stops the brokers and tools that the black-box tests use; knows nothing of what is tested with them."""
