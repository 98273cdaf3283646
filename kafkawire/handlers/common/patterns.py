"""Patterns of clients, in RE2 syntax, whose time is linear in the text.

Apache Kafka uses RE2/J here, which has the same syntax.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import re2

PATTERN_MAX_LENGTH: Final = 10_000
MEMORY_MAX_BYTES: Final = 1 << 20


class InvalidPattern(Exception):
    """An invalid or too large pattern; the text gives the reason."""


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """A function that tells whether a whole text matches the pattern. Raises InvalidPattern."""
    if len(pattern) > PATTERN_MAX_LENGTH:
        raise InvalidPattern(f"longer than {PATTERN_MAX_LENGTH} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY_MAX_BYTES
    try:
        compiled = re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        raise InvalidPattern(_text_of(error)) from error

    def fits(text: str) -> bool:
        return compiled.fullmatch(text) is not None

    return fits


def _text_of(error: Exception) -> str:
    """The text of an error of RE2, which may be bytes."""
    text = error.args[0] if error.args else ""
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
