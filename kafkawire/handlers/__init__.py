"""One module per API, named as its message module. `API_TABLE` is the list of what is served."""
