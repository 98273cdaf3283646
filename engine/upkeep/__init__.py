"""Background work on logs: retention, sealing, scrubbing, producer expiry, and the input of the tier."""
