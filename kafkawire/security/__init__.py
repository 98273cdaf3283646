"""Who talks to the broker: brokers prove it to each other; TLS, ACLs and quotas of clients are refused as yet."""
