"""The metadata store of a cluster against real servers, which are killed and stand still, and over lines that fail."""
