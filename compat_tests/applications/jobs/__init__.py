"""`kafkawire-spark` as it is started on a command line, with brokers of both kinds."""
