"""What the cluster is: its image, and the pure decisions about topics, placement and leaders."""
