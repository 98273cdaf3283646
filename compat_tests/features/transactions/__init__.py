"""Transactions, by every client that has them."""
