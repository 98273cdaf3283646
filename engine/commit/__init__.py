"""How appends become durable: queue, rounds, journal, recovery points."""
