"""Sockets and connections: accepting, receiving, sending, limits, and their end."""
