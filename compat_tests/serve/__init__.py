"""`kafkawire serve` as an operator meets it: the ready line, health, refusals, signals."""
