"""Installable files: the wheel, the image, the service, and its monitoring."""
