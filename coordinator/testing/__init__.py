"""Fakes of the control plane, for tests of the coordinator and for a whole broker in memory."""
