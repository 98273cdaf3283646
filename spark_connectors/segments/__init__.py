"""Direct reads of sealed segments: catalogues of segments, plans of tasks, and reads of bytes."""
