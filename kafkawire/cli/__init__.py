"""The `kafkawire` command, one module per subcommand."""
