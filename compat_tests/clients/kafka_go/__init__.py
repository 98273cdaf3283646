"""kafka-go of Segment."""
