"""The stored index of a log dir: positions of batches and keys, in LevelDB."""
