"""sarama: the version of today, one that writes no greatest timestamp, and the oldest one."""
