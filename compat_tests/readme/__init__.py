"""The README, as somebody types it who has just found the project."""
