"""Reads of a Fetch request, and fetch sessions between requests."""
