"""Adapters between the packages: the engine's partitions, the control plane, the coordinators and the remote tier."""
