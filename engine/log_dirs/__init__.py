"""What partitions on one disk share, how they come to lie there, and how their logs get shorter."""
