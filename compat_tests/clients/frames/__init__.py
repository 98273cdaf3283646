"""Recorded requests of clients; unit tests read them from `kafkawire/requests/tests/frames`."""
