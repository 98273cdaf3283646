"""The README, typed by a user who has just found the project."""
