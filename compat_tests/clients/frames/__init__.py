"""Recorded requests of clients; unit tests read them from `testkit/frames`."""
