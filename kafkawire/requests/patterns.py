"""Patterns that clients send: RE2, whose time is linear in what it looks at, whatever is asked. The door to google-re2.

Apache Kafka uses RE2/J here, which knows the same expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import re2

PATTERN_MAX_LENGTH: Final = 10_000
MEMORY_MAX_BYTES: Final = 1 << 20


class InvalidPattern(Exception):
    """It is not one, or too large; the text says why."""


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Whether a whole text is as the pattern says. Raises InvalidPattern."""
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
    """RE2's is bytes."""
    text = error.args[0] if error.args else ""
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
