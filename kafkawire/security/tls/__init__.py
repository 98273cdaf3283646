"""TLS of listeners: key stores, contexts that are loaded again when their files change, and the names of clients."""
