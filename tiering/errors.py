"""Errors of the tier, beyond those of its store in `tiering.object_store`."""


class TierError(Exception):
    """Base of the errors that the tier raises on purpose."""


class Fenced(TierError):
    """A writer with a higher fence has written: no write and no deletion is allowed any more."""


class TierDamaged(TierError):
    """The content of the store differs from what was written."""


class OtherVersion(TierError):
    """The content of the store has a format version that this version of Kafkawire does not know."""
