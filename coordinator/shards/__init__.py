"""Internal topics at work: what their tables decide is written, and told when it is durable."""
