"""Authentication between brokers. TLS, ACLs and quotas of clients are refused as yet."""
