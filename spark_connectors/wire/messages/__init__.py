"""Messages: one module for each API, with the request and the reply of the one version that is used."""
