"""Object stores as the tier sees them: a real S3 server, and what a server or a network may answer."""
