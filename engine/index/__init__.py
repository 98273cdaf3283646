"""The stored index of a log dir: where batches and keys are, in LevelDB."""
