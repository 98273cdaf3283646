"""One module per API: what is asked and what is answered, in the one version that is spoken."""
