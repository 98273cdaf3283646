"""Sockets and connections: what accepts, receives, sends, bounds and ends them."""
