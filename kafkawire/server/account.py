"""What the budget over all connections counts for one of them."""

from __future__ import annotations

from kafkawire.server.byte_budget import ByteBudget


class Account:
    """Tells the budget of changes alone."""

    __slots__ = ("_budget", "_held_size_bytes", "_large_size_bytes")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._held_size_bytes = 0
        self._large_size_bytes = 0

    def settle(self, held_size_bytes: int, large_size_bytes: int) -> None:
        """What is held now, and how much of it by a large frame that is coming in."""
        budget = self._budget
        if held_size_bytes != self._held_size_bytes:
            budget.held_size_bytes += held_size_bytes - self._held_size_bytes
            self._held_size_bytes = held_size_bytes
        if large_size_bytes != self._large_size_bytes:
            budget.large_size_bytes += large_size_bytes - self._large_size_bytes
            self._large_size_bytes = large_size_bytes
            if not large_size_bytes:
                budget.has_finished(self)

    def admits(self, *, is_large: bool) -> bool:
        """Whether more may be received, into a large frame's own buffer if `is_large`."""
        return self._budget.admits(self, is_large=is_large)

    def close(self) -> None:
        """The connection is gone."""
        self.settle(0, 0)
        self._budget.has_finished(self)
