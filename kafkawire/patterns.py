"""Patterns in RE2 syntax, whose time is linear in the text. The only user of google-re2."""

from __future__ import annotations

from typing import Any, Final

import re2

MEMORY_MAX_BYTES: Final = 8 << 20  # RE2's own default


class InvalidPattern(Exception):
    """An invalid or too large pattern; the text gives the reason."""


def compiled(pattern: str, memory_max_bytes: int = MEMORY_MAX_BYTES) -> Any:
    """The compiled pattern, which has the methods of one of Python's `re`. Raises InvalidPattern."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory_max_bytes
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        raise InvalidPattern(_text_of(error)) from error


def _text_of(error: Exception) -> str:
    """The text of an error of RE2, which may be bytes."""
    text = error.args[0] if error.args else ""
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
