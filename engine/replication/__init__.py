"""Replication of a partition: pure state machines of leader and follower, and the progress of the replicas."""
