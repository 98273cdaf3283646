"""Membership of this broker: registration, controlled shutdown, states of its replicas, and roles from images."""
