"""Consumer groups as stock clients form them: the same scenarios for each client, against the running broker."""
