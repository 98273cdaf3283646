"""Keys of listeners: TLS, and how a listener's prefix overrides a key."""
