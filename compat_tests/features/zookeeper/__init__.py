"""The metadata store of a cluster on real servers, which are killed or stand still, over connections that fail."""
