"""How long the first rebalance of a group waits for more members (KIP-134). Pure."""

from __future__ import annotations


class RebalanceDelay:
    """The wait goes on while new members come, at most for the rebalance timeout."""

    def __init__(self, delay_ms: int, rebalance_timeout_ms: int) -> None:
        self.has_newcomers = True  # since it was last asked
        self._delay_ms = delay_ms
        self._remaining_ms = max(rebalance_timeout_ms, delay_ms)

    def next_delay_ms(self) -> int:
        """The milliseconds to wait on; 0: it has been long enough."""
        delay_ms = min(self._delay_ms, self._remaining_ms) if self.has_newcomers else 0
        self.has_newcomers = False
        self._remaining_ms -= delay_ms
        return delay_ms
