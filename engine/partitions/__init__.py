"""A partition as a replica: appends, acknowledgements, and the offsets that readers may see."""
