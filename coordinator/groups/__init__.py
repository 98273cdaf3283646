"""Consumer groups: their members, the partitions assigned to them, and committed offsets."""
