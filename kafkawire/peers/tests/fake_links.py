"""Fake peer connections: they note the requests, and the test answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coordinator.futures import SettableFuture
from kafkawire.peers.errors import LinkFailed, SentBy
from kafkawire.security.link_claim import LinkNumber


class Call(NamedTuple):
    """A request to another broker."""

    broker_id: int
    request: Any
    version: int
    purpose: str
    answer: SettableFuture[Any]


@dataclass
class FakeLinks:
    """`over`: connections whose requests can no longer be executed; `renewed`: connections that `renew` was called
    for."""

    calls: list[Call] = field(default_factory=list)
    over: set[SentBy] = field(default_factory=set)
    renewed: list[SentBy] = field(default_factory=list)

    def call(self, broker_id: int, request: Any, version: int, *, purpose: str) -> SettableFuture[Any]:
        answer: SettableFuture[Any] = SettableFuture()
        self.calls.append(Call(broker_id, request, version, purpose, answer))
        return answer

    def is_over(self, sent: SentBy) -> bool:
        return sent in self.over

    def renew(self, sent: SentBy) -> None:
        self.renewed.append(sent)


def link(broker_id: int, counter: int = 1) -> SentBy:
    return SentBy(broker_id, bytes(16), "markers", LinkNumber(1, counter))


def cut(broker_id: int, counter: int = 1) -> LinkFailed:
    """The failure of a request whose connection was lost."""
    return LinkFailed("cut", link(broker_id, counter))
