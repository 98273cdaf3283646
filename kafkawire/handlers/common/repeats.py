"""Limit on repeated names in a request whose response is far larger than the names.

Apache Kafka answers each repetition. Here a few are answered, because clients may be careless. More of them would let a
small request ask for gigabytes, and end the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkawire.wire.connection import ProtocolViolation

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

REPEATS_MAX: Final = 10


def check_repeats(names: Collection[Hashable]) -> None:
    """Raise ProtocolViolation if a name is repeated too often."""
    repeats = len(names) - len(set(names))
    if repeats > REPEATS_MAX:
        raise ProtocolViolation(f"{repeats} of {len(names)} names repeat others, at most {REPEATS_MAX} may")
