"""Errors of an import. They are pickled by workers, so they take their parts as positional arguments."""

from __future__ import annotations


class ImportRefused(Exception):
    """An impossible request; a retry cannot help. One line gives the reason."""


class Interrupted(Exception):
    """The end of the target is unknown or unexpected. Look it up, and continue there."""
