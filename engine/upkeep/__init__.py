"""What goes on behind the appends: retention, sealing, reading again."""
