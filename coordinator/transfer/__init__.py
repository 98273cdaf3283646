"""Transfer of the metadata into another store: export, import, restore from the tier, and acceptance of a rollback."""
