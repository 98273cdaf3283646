"""The metadata of the cluster: the image, the change log, and the nodes that keep both. Pure but for the change log."""
