"""Object stores as the tier sees them: a real S3 server, and possible answers of a server or a network."""
