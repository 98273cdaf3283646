"""Starts and stops the brokers and tools of the black-box tests, without knowledge of the tests."""
