"""Consoles that only need the protocol, against the running broker."""
