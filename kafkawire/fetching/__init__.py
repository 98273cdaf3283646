"""What a fetch finds, and what is remembered between fetches."""
