"""Stop, kill and start again: what was acknowledged stays."""
