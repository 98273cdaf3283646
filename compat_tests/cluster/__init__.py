"""Three brokers as processes on a real ZooKeeper: what becomes of them, and of versions that run together."""
