"""Simulation of three real brokers that replicate, under faults that a seed chooses: clients, faults and checkers."""
