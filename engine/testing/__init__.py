"""Simulated disks, worker pools and indexes, for tests of the engine and for a whole broker in memory."""
