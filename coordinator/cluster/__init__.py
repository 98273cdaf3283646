"""The cluster: its image, and the pure decisions about topics, placement and leaders."""
