"""A broker that often looks for transactions that have timed out, and producers that end with their test."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from compat_tests.features.transactions.producers import TransactionalProducer
from compat_tests.harness.target import target_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compat_tests.harness.broker import Broker

    NewProducer = Callable[..., TransactionalProducer]

QUICK_TRANSACTIONS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for all transactions of the run."""
    with target_broker(tmp_path_factory.mktemp("broker"), QUICK_TRANSACTIONS) as running:
        yield running


@pytest.fixture
def new_producer(broker: Broker) -> Iterator[NewProducer]:
    """A factory of producers, by client and transactional id."""
    with ExitStack() as ends:

        def start(name: str, transactional_id: str, **settings: int) -> TransactionalProducer:
            producer = TransactionalProducer(broker, name, transactional_id, **settings)
            ends.callback(producer.crash)
            return producer

        yield start
