"""Internal topics at work: shards write the decisions of their tables, and answer when these are durable."""
