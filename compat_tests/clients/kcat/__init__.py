"""kcat against the running broker."""
