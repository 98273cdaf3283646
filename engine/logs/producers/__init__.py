"""Producer state of a log: sequences and epochs, snapshots, and recovery."""
