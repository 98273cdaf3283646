"""The history that the changes of a metadata store belong to, and the memory of it that a broker keeps over a restart.
Pure.

A history begins with the first start of a cluster, with an import, or when an operator accepts a rollback of the store.
Generations count them. No broker follows a store into another history while it runs: it is restarted.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final


@dataclass(frozen=True, slots=True)
class History:
    """A history. `first_change`: greater than every change number of earlier histories; 0: not known, after an import.

    The epochs and the producer id are those that the history began with; earlier histories used none of them.
    `keeps_strays`: partitions on disk that the metadata do not name are kept at a start.
    """

    generation: int = 0
    history_id: str = ""  # 32 hex digits
    first_change: int = 0
    leader_epoch: int = 0
    broker_epoch: int = 0
    controller_epoch: int = 0
    next_producer_id: int = 0
    keeps_strays: bool = False


FIRST: Final = History()


@dataclass(frozen=True, slots=True)
class HistoryPosition:
    """The newest change that a broker has followed, and the digest of its value, empty if there was none."""

    generation: int
    history_id: str
    change: int
    digest: str = ""


def digest_of(value: bytes | None) -> str:
    """The digest by which the value of a change is recognized."""
    return "" if value is None else sha256(value).hexdigest()[:32]


def contradiction(known: HistoryPosition, history: History, newest: int, digest: str) -> str | None:
    """The reason why a store is not a continuation of the followed history; None if it may be one.

    `newest`: the number of the store's newest change. `digest`: that of the change `known.change` in the store, empty
    if it is not kept.
    """
    if history.generation > known.generation:
        if not history.first_change or known.change < history.first_change:
            return None
        begins = f"the accepted history begins with change {history.first_change}"
        return f"this broker has applied change {known.change}, and {begins}"
    if history.generation < known.generation:
        return f"this broker has applied history {known.generation}, and the store has history {history.generation}"
    if history.history_id != known.history_id:
        return f"this broker has applied another history {known.generation} than the store has"
    if newest < known.change:
        return f"its newest change is {newest}, and this broker has applied change {known.change}"
    if digest and known.digest and digest != known.digest:
        return f"change {known.change} differs from the change that this broker has applied"
    return None
