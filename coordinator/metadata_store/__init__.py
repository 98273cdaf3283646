"""The metadata store: one Protocol, an embedded back end, and a fake that misbehaves as real stores do."""
