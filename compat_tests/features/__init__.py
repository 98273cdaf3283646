"""Features of the broker, shown with several clients or with the command line."""
