"""What brokers ask of each other, over numbered connections of their own, and what they make of the answers."""
