"""Recovery of logs at a start: checkpoints, leader epochs, loading, and truncation."""
