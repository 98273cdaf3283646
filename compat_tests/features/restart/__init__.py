"""Stop, kill and start again: acknowledged records stay."""
