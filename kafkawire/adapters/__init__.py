"""What joins the packages: the engine's partitions as the control plane sees them."""
