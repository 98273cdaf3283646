"""Fills a topic from one of another cluster: offsets stay as they are, or a file tells which became which."""
