"""What an import ends with. They come from workers, so they take what they are made of as positional arguments."""

from __future__ import annotations


class ImportRefused(Exception):
    """What is asked for cannot be had, however often: one line says why."""


class Interrupted(Exception):
    """It is not known how far the target has come, or it is elsewhere than it should be: look there, and go on."""
