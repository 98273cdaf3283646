"""The command `kafkawire metadata`."""
