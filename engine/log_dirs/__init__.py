"""Log dirs: layout on disk, placement of partitions, log starts, truncation, and stray logs."""
