"""Topics in the remote tier, as stock clients meet them."""
