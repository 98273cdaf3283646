"""How far the replicas of a partition are, and what they owe each other: machines without anything around them."""
