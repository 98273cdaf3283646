"""The disk: the only doors to files, threads and syncs, and the failure domain that a log dir is."""
