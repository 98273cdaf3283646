"""A partition as a replica: who may append, what is acknowledged, what readers may see."""
