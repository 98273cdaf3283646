"""Verification of partitions of transactions, and their addition: here, or with AddPartitionsToTxn at another
coordinator.

A late request never adds a partition to another transaction. Over peer connections partitions are added in the second
protocol alone (KIP-890): there each end of a transaction gives the producer another epoch, and the coordinator refuses
the earlier one. In the first protocol a leader only asks whether a transaction has a partition. The reply is to exactly
that question, so that a marker that comes meanwhile invalidates it (RULES C6). It follows Kafka's
AddPartitionsToTxnManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from coordinator.api import NO_LEADER
from coordinator.errors import (
    ConcurrentTransactions,
    CoordinatorError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    NotCoordinator,
    ProducerFenced,
    TransactionTooLarge,
)
from coordinator.futures import SettableFuture
from coordinator.shards.shard_set import partition_of
from coordinator.transactions.api import SECOND_PROTOCOL, Partition, ProducerIdentity
from coordinator.transactions.service import TRANSACTIONS_TOPIC
from kafkawire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafkawire.peers.batching import RequestBatcher
from kafkawire.peers.errors import LinkFailed
from kafkawire.requests.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from coordinator.api import ClusterService, Future
    from coordinator.transactions.api import TransactionPartitions
    from kafkawire.peers.peers import Peers
    from kafkawire.wire.message import Message

TRANSACTIONS_PER_REQUEST: Final = 500

# Error codes of a coordinator, as the errors that a local coordinator raises.
_ERRORS: Final[Mapping[int, type[CoordinatorError]]] = {
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: InvalidProducerIdMapping,
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerFenced,
    ErrorCode.PRODUCER_FENCED: ProducerFenced,
    ErrorCode.CONCURRENT_TRANSACTIONS: ConcurrentTransactions,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorLoading,
    ErrorCode.NOT_COORDINATOR: NotCoordinator,
    ErrorCode.UNKNOWN_SERVER_ERROR: TransactionTooLarge,  # the code for it; a failure there has the same effect
}


class _Question(NamedTuple):
    """A question about one transaction, and the future of its answer."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: Sequence[Partition]
    verify_only: bool
    answer: SettableFuture[Any]


class ClusterTransactions:
    """A `TransactionPartitions` for the whole cluster; the caller runs `run` in a task.

    `local` has the transactions that this broker coordinates. Requests of other brokers go to `local` alone: a request
    that was sent to the wrong broker is not forwarded.
    """

    def __init__(self, local: TransactionPartitions, links: Peers, cluster: ClusterService, broker_id: int) -> None:
        self._local = local
        self._cluster = cluster
        self._broker_id = broker_id
        self._batcher = RequestBatcher(links, _TransactionBatches())

    async def run(self) -> None:
        """Serve for as long as the broker lives."""
        await self._batcher.run()

    def add_partitions(
        self, transactional_id: str, asking: ProducerIdentity, partitions: Collection[Partition], *, protocol: int
    ) -> Future[None]:
        """See `TransactionPartitions`; at another broker in the second protocol alone."""
        coordinator = self._coordinator_of(transactional_id)
        if coordinator == self._broker_id:
            return self._local.add_partitions(transactional_id, asking, partitions, protocol=protocol)
        assert protocol == SECOND_PROTOCOL, "in the first one clients add partitions, at the coordinator"
        question = _Question(transactional_id, asking, list(partitions), verify_only=False, answer=SettableFuture())
        return self._ask(coordinator, question)

    def verify_partitions(
        self, transactional_id: str, asking: ProducerIdentity, partitions: Sequence[Partition]
    ) -> Future[list[bool]]:
        """See `TransactionPartitions`."""
        coordinator = self._coordinator_of(transactional_id)
        if coordinator == self._broker_id:
            return self._local.verify_partitions(transactional_id, asking, partitions)
        return self._ask(
            coordinator, _Question(transactional_id, asking, partitions, verify_only=True, answer=SettableFuture())
        )

    def _coordinator_of(self, transactional_id: str) -> int:
        topic = self._cluster.image.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return NO_LEADER
        return topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader

    def _ask(self, coordinator: int, question: _Question) -> Future[Any]:
        if coordinator == NO_LEADER:
            question.answer.settle(CoordinatorNotAvailable(f"{question.transactional_id} has no coordinator"))
        else:
            self._batcher.add(coordinator, question)
        return question.answer


class _TransactionBatches:
    """A `BatchKind` of questions about transactions."""

    purpose = "transactions"
    version = 5
    items_max = TRANSACTIONS_PER_REQUEST

    def key_of(self, item: _Question) -> str:
        """The transactional id."""
        return item.transactional_id

    def request(self, items: Sequence[_Question]) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(transactions=[_to_message(one) for one in items])

    def settle_items(self, items: Sequence[_Question], reply: Future[Message]) -> None:
        try:
            response = reply.result()
        except LinkFailed as error:
            for one in items:
                one.answer.settle(CoordinatorNotAvailable(str(error)))
            return
        assert isinstance(response, AddPartitionsToTxnResponse)
        results = {one.transactional_id: _codes(one) for one in response.results_by_transaction}
        for one in items:
            one.answer.settle(_result_of(one, results.get(one.transactional_id, {})))


def _to_message(question: _Question) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for one in question.partitions:
        topics.setdefault(one.topic, []).append(one.number)
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer.producer_id,
        producer_epoch=question.producer.epoch,
        verify_only=question.verify_only,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
    )


def _codes(result: AddPartitionsToTxnResult) -> dict[Partition, int]:
    return {
        Partition(topic.name, row.partition_index): row.partition_error_code
        for topic in result.topic_results
        for row in topic.results_by_partition
    }


def _result_of(question: _Question, codes: Mapping[Partition, int]) -> list[bool] | CoordinatorError | None:
    """The answer in a reply, or the error. A partition that the reply does not name is worth another try, for example
    because the coordinator does not know its topic yet."""
    found = [codes.get(one, ErrorCode.COORDINATOR_NOT_AVAILABLE) for one in question.partitions]
    fine = (ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE) if question.verify_only else (ErrorCode.NONE,)
    refusals = [code for code in found if code not in fine]
    if refusals:
        code = next((one for one in refusals if one != ErrorCode.OPERATION_NOT_ATTEMPTED), refusals[0])
        refusal = _ERRORS.get(code, CoordinatorNotAvailable)
        return refusal(f"the coordinator of {question.transactional_id} answers with {code}")
    return [code == ErrorCode.NONE for code in found] if question.verify_only else None
