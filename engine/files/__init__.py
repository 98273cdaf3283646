"""Access to the disk: the only modules that use files, threads and syncs, and the failure domain of a log dir."""
