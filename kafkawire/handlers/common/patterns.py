"""Patterns of clients, within bounds.

Apache Kafka uses RE2/J here, whose syntax is RE2's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kafkawire.patterns import InvalidPattern, compiled

PATTERN_MAX_LENGTH: Final = 10_000
MEMORY_MAX_BYTES: Final = 1 << 20


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """A function that tells whether a whole text matches the pattern. Raises InvalidPattern."""
    if len(pattern) > PATTERN_MAX_LENGTH:
        raise InvalidPattern(f"longer than {PATTERN_MAX_LENGTH} characters")
    found = compiled(pattern, MEMORY_MAX_BYTES)

    def fits(text: str) -> bool:
        return found.fullmatch(text) is not None

    return fits
