"""The process around a broker: its start, its log, its machine, and checks of these."""
