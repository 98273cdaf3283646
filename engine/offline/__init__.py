"""Log dirs that no broker has open, for the command line."""
