"""What users install: the wheel, the image, the service, and what watches it."""
