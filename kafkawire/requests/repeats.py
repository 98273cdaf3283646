"""How often a request may name the same thing, where an answer is far larger than a name.

Apache Kafka answers each repetition. Here a few are answered, for clients may be careless; more would let a small
request ask for gigabytes, and end the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkawire.wire.connection import ProtocolViolation

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

REPEATS_MAX: Final = 10


def check_repeats(names: Collection[Hashable]) -> None:
    """Raises ProtocolViolation."""
    repeats = len(names) - len(set(names))
    if repeats > REPEATS_MAX:
        raise ProtocolViolation(f"{repeats} of {len(names)} names repeat others, at most {REPEATS_MAX} may")
