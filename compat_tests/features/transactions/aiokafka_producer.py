"""A transactional producer by aiokafka."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer, TopicPartition

from compat_tests.features.transactions.driver import Producer, main

if TYPE_CHECKING:
    from collections.abc import Coroutine


class _Producer(Producer):
    """The producer. The library needs an event loop, which only runs while one of these methods runs."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "transactional_id": transactional_id,
            "transaction_timeout_ms": timeout_ms,
        }

    def _run(self, what: Coroutine[Any, Any, Any]) -> None:
        self._loop.run_until_complete(what)

    def initialise(self) -> None:
        self._run(self._start())

    async def _start(self) -> None:
        self._producer = AIOKafkaProducer(**self._settings)
        await self._producer.start()

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: str) -> None:
        self._run(self._producer.send_and_wait(topic, value.encode(), partition=partition))

    def offsets(self, group: str, topic: str, partition: int, offset: int) -> None:
        self._run(self._producer.send_offsets_to_transaction({TopicPartition(topic, partition): offset}, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())


if __name__ == "__main__":
    main(_Producer)
