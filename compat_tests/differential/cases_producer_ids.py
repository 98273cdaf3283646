"""InitProducerId without transactions: requests that get an id, and requests that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat_tests.differential.catalogue import case

if TYPE_CHECKING:
    from compat_tests.differential.side import Side


def ask(side: Side, version: int, label: str, **fields: Any) -> None:
    request: dict[str, Any] = {"transactional_id": None, "transaction_timeout": 60_000}
    if version >= 3:
        request |= {"producer_id": -1, "producer_epoch": -1}
    side.ask("init_producer_id", version, request | fields, label=label)


@case("init_producer_id")
def idempotent(side: Side, version: int) -> None:
    ask(side, version, "a new one")
    ask(side, version, "no time-out", transaction_timeout=-1)


@case("init_producer_id", since=3)
def with_what_it_had(side: Side, version: int) -> None:
    ask(side, version, "id and epoch", producer_id=5, producer_epoch=3)
    ask(side, version, "id alone", producer_id=5)
    ask(side, version, "epoch alone", producer_epoch=5)
    ask(side, version, "negative", producer_id=-2, producer_epoch=-2)


@case("init_producer_id")
def empty_transactional_id(side: Side, version: int) -> None:
    ask(side, version, "empty", transactional_id="")
