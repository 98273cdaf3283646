"""Records the requests that clients send; unit tests read them from `kafkawire/requests/tests/frames`."""
