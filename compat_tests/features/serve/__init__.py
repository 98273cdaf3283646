"""`kafkawire serve` for an operator: the ready line, health, refusals, signals."""
