"""Generators and the suite runner; nothing here is shipped."""
