"""What goes wrong with a tier beyond its store: `tiering.object_store` has the errors of that."""


class TierError(Exception):
    """Base of what the tier raises on purpose."""


class Fenced(TierError):
    """Somebody with a higher fence has written: nothing may be written, or deleted, any more."""


class TierDamaged(TierError):
    """What the store has is not what was written there."""


class OtherVersion(TierError):
    """What the store has was written by a version of Kafkawire that this one does not understand."""
