"""Import of a topic from another cluster: offsets stay, or a file maps old offsets to new ones."""
