"""Parts that several commands share: connections to a cluster, output, record formats and signals."""
